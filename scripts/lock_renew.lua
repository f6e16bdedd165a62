-- lock_renew: moves the end of a lease to one ttl from now, while it is open and this token's; an
-- ended lease is never revived. A holder that began with its message, and never asked for its
-- grant, gives up its place in the queue. An exclusive lock is renewed as redislock renews it, and
-- with it the keys that redislock does not have.
-- Uses   format clock integer fence lock lock_drop retain lock_grant
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set,
--        tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)
-- ARGV   [1] token  [2] ttl  [3] the grant's fence; '' for whatever it is
-- Reply  {'ok', until, now} | {'lost'} ended, released, broken or another's
-- Units  ttl in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok
local lock, fences, queue, waiters, holders, token, ttl = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], tonumber(ARGV[2])
local last_grant = redis.call('GET', fences)
refuse_newer('lock', last_grant) -- it says so for all keys of the lock
local value = redis.call('GET', lock)

local function give_up_place()
  redis.call('HLEN', waiters) -- an error before anything is written, should it be no hash
  drop(queue, waiters, token)
end

if value and string.sub(value, 1, 22) == token then
  local last = read_fence(last_grant)
  if last.token ~= token or ARGV[3] ~= '' and ARGV[3] ~= last.number then
    return {'lost'}
  end
  if last.inbox ~= '-' then
    give_up_place()
  end
  redis.call('PEXPIRE', lock, ARGV[2]) -- first: a script whose first write adds nothing may go on when memory is full
  write_fence(fences, last.number, token, last.since, '-', remember(ttl, last.number))
  return {'ok', integer(now + ttl), now_text}
end
-- Another package's script runs before this line.
local state = read_lock(value, last_grant, holders)
local mine = state.together[token]
if not mine or ARGV[3] ~= '' and ARGV[3] ~= read_whole(mine).fence then
  return {'lost'}
end
give_up_place()
redis.call('HDEL', holders, token) -- first, as above
renew_together(lock, fences, holders, state, token, ttl)
return {'ok', integer(now + ttl), now_text}
