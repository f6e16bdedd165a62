-- lock_leave: releases a lock, or a place in its queue, whichever the token has. A lock with
-- waiters goes to the next one in the same step.
-- Uses   format lock_line clock integer fence word incarnation lock lock_drop retain lock_grant
--        lock_doubt
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set,
--        tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)  [6] the marker of lost state (string, see
--        lib/lock_doubt); only if a hold-off is among the terms
-- ARGV   [1] token  [2] inbox of the caller's process, '' = none  [3] terms, see lib/lock_grant
--        [4] facts, see lib/incarnation
-- Reply  {'free'} only the token held it | {'left'} others hold it | {'place'} it had a place in
--        the queue alone | {one of these, now, token, fence…} the waiters of the caller's process
--        that got the lock, each for the ttl that it asked for
--        | {'gone'} the token has neither: it ended, was released before, or never had one
-- Units  spans in milliseconds; now in milliseconds since 1970 of this server
-- Effect writes unless gone
local lock, fences, queue, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local last_grant = redis.call('GET', fences)
refuse_newer('lock', last_grant) -- it says so for all keys of the lock
local loss_marker = KEYS[6] and redis.call('GET', KEYS[6])
refuse_newer('marker', loss_marker)
local value = redis.call('GET', lock)
local mine = value and string.sub(value, 1, 22) == token
if mine and redis.call('ZCARD', queue) == 0 then
  local left = redis.call('PTTL', lock)
  redis.call('DEL', lock)
  if left > 60000 then -- else the fence is remembered for a minute longer at most
    redis.call('PEXPIRE', fences, math.max(redis.call('PTTL', fences) - left, 60000)) -- for as long as after the lease's end
  end
  return {'free'}
end
local waiters, holders = KEYS[4], KEYS[5]
local first = mine and first_in_line(queue)
local patience, window, counts, span = read_terms(ARGV[3])
local state = read_lock(value, last_grant, holders)
-- a holder that has not asked for its grant still has its place
local place = mine and state.last.inbox ~= '-' or not mine and redis.call('ZSCORE', queue, token)
local records = redis.call('HLEN', waiters)
redis.call('HLEN', holders) -- an error before anything is written, should it be no hash
local held = mine or state.together[token]
if not held and not place then
  return {'gone'}
end
if mine then
  redis.call('DEL', lock)
  state.kind = ''
elseif held then
  withdraw(lock, holders, state, token)
end
if place then
  drop(queue, waiters, token)
end
state.last.inbox = '-' -- no process has missed a window
local reply = {'left'}
if not held then
  reply = {'place'}
elseif state.kind == '' then
  reply = {'free'}
end
if records > 0 and in_doubt(KEYS[6], loss_marker, span, read_facts(ARGV[4])) == 0 then -- after the first write, which may be refused when memory is full
  local heirs = hand_over(lock, fences, queue, waiters, holders, state, '', ARGV[2], window, counts, patience, first)
  for i, heir in ipairs(heirs) do
    reply[2], reply[2 * i + 1], reply[2 * i + 2] = now_text, heir[1], heir[2]
  end
end
if state.kind ~= 'x' and state.last.number then
  local past = remember(math.max(last_end(state) - now, 0), state.last.number)
  if redis.call('PTTL', fences) > tonumber(past) then
    redis.call('PEXPIRE', fences, past)
  end
end
return reply
