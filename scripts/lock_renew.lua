-- lock_renew: moves the end of a lease to one ttl from now, while it is open and this token's; an
-- ended lease is never revived. A holder that began with its message, and never asked for its
-- grant, gives up its place in the queue. For an exclusive lock it runs after redislock's own
-- script, and renews the keys that redislock does not have.
-- Uses   format lock_format clock integer fence lock lock_line lock_drop retain lock_grant
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set,
--        tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)
-- ARGV   [1] token  [2] ttl  [3] the grant's fence; '' for whatever it is
-- Reply  {'ok', until, now} | {'lost'} ended, released, broken or another's
-- Units  ttl in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok
local lock, fences, queue, waiters, holders, token, ttl = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], tonumber(ARGV[2])
local state = read_lock(redis.call('GET', lock), last_grant, holders)
local mine = state.together[token]

local function give_up_place()
  redis.call('HLEN', waiters) -- an error before anything is written, should it be no hash
  drop(queue, waiters, token)
end

if mine and (ARGV[3] == '' or ARGV[3] == read_whole(mine).fence) then
  give_up_place()
  redis.call('HDEL', holders, token) -- first, as those before: a script whose first write adds nothing may go on when memory is full
  renew_together(lock, fences, holders, state, token, ttl)
elseif state.kind == 'x' and string.sub(state.value, 1, 22) == token and state.last.token == token and (ARGV[3] == '' or ARGV[3] == state.last.number) then
  if state.last.inbox ~= '-' then
    give_up_place()
  end
  redis.call('PEXPIRE', lock, ARGV[2]) -- first, as above
  write_fence(fences, state.last.number, token, state.last.since, '-', remember(ttl, state.last.number))
else
  return {'lost'}
end
return {'ok', integer(now + ttl), now_text}
