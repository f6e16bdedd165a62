-- lock_break: takes a lock from the holder with that fence, which learns of it at its next renewal.
-- A new fence is minted, larger than the holder's, so that a resource that gets the new fence
-- refuses the holder at once. The lock then goes to the next waiter.
-- Uses   format clock integer fence word incarnation lock lock_line lock_drop retain lock_grant
--        lock_doubt
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set,
--        tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)  [6] the marker of lost state (string, see
--        lib/lock_doubt); only if a hold-off is among the terms
-- ARGV   [1] the grant's fence; 0 for a holder without one (a client of redislock)
--        [2] terms, see lib/lock_grant
--        [3] facts, see lib/incarnation
-- Reply  {'broken', new fence} | {'unknown'} no holder has that fence
-- Units  spans in milliseconds
-- Effect writes on broken
local lock, fences, queue, waiters, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local last_grant = redis.call('GET', fences)
refuse_newer('lock', last_grant) -- it says so for all keys of the lock
local loss_marker = KEYS[6] and redis.call('GET', KEYS[6])
refuse_newer('marker', loss_marker)
local patience, window, counts, span = read_terms(ARGV[2])
local state = read_lock(redis.call('GET', lock), last_grant, holders)
local records = redis.call('ZCARD', queue) + redis.call('HLEN', waiters)
redis.call('HLEN', holders) -- an error before anything is written, should it be no hash

-- holder returns the token with that fence.
local function holder()
  if state.kind == 'x' then
    local token = string.sub(state.value, 1, 22)
    local number = state.last.token == token and state.last.number or '0'
    return number == ARGV[1] and token
  end
  for token, each in pairs(state.together) do
    if read_whole(each).fence == ARGV[1] then
      return token
    end
  end
end

local token = holder()
if not token then
  return {'unknown'}
end
-- First: a script whose first write adds nothing may go on when memory is full.
if state.kind == 'x' then
  redis.call('DEL', lock)
else
  withdraw(lock, holders, state, token)
end
mint(fences, state, '-', '-', 0)
local fence = state.last.number
if state.kind == 'x' then
  state.kind = ''
end
if records > 0 and in_doubt(KEYS[6], loss_marker, span, read_facts(ARGV[3])) == 0 then
  hand_over(lock, fences, queue, waiters, holders, state, '', '', window, counts, patience)
end
return {'broken', fence}
