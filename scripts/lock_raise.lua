-- lock_raise: renews an exclusive lock of a quorum on one of its servers, and raises its fence to
-- the largest that any of them has minted for it. Every later majority includes one of these
-- servers, and so mints a larger one. Both happen only while the token holds the lock; a fence
-- never falls, an ended lease is never revived.
-- Uses   clock integer fence lock lock_run lock_line lock_drop retain lock_grant
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)
-- ARGV   [1] token  [2] the fence to raise to, below 2^53  [3] ttl
-- Reply  {'ok', the stored fence} at least that of the call | {'lost'} ended, released,
--        broken, lost by this server or never this token's
-- Units  ttl in milliseconds
-- Effect writes on ok
local lock, fences, token = KEYS[1], KEYS[2], ARGV[1]
local last = read_fence(fences)
if string.sub(redis.call('GET', lock) or '', 1, 22) ~= token or last.token ~= token then
  return {'lost'}
end
local fence = last.number
if tonumber(fence) < tonumber(ARGV[2]) then
  fence = ARGV[2]
end
redis.call('PEXPIRE', lock, ARGV[3]) -- first: a script whose first write adds nothing may go on when memory is full
write_fence(fences, fence, token, last.since, '-', remember(tonumber(ARGV[3]), fence))
return {'ok', fence}
