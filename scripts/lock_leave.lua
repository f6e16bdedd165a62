-- lock_leave: gives a lock back, or a place in its queue, whichever the token has. A lock that others wait for goes to the next in line in the same step.
-- Uses   clock integer fence incarnation lock lock_grant lock_doubt
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set, tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)  [6] the marker of lost state (string, see lib/lock_doubt); only when ARGV[6] > 0
-- ARGV   [1] token  [2] inbox of the caller's process, '' = none  [3] how long a waiter keeps its place, [4] claim window, [5] whether PUBLISH counts and
--        [6] how long nothing is granted after a loss, as lock_enter
-- Reply  {'left', token…} the tokens of the caller's process that were granted the lock by this | {'gone'} the token has neither: it ended, was given back before, or never had one
-- Units  spans in milliseconds
-- Effect writes on left
local lock, fences, queue, waiters, holders, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1]
local value = redis.call('GET', lock)
local mine = value and string.sub(value, 1, 22) == token
if mine and redis.call('ZCARD', queue) == 0 then
  redis.call('DEL', lock)
  return {'left'}
end
local state = read_lock(lock, fences, holders)
local place = redis.call('ZSCORE', queue, token)
local records = redis.call('HLEN', waiters)
if not mine and not state.together[token] and not place then
  return {'gone'}
end
local pass_on = records > 0 and in_doubt(KEYS[6], tonumber(ARGV[6])) == 0
if mine then
  redis.call('DEL', lock)
  state.kind = ''
elseif state.together[token] then
  withdraw(lock, holders, state, token)
else
  drop(queue, waiters, token)
end
state.last.inbox = '-' -- nobody has let a window pass
local reply = {'left'}
if not pass_on then
  return reply
end
for _, told in ipairs((hand_over(lock, fences, queue, waiters, holders, state, '', ARGV[2], tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[3])))) do
  reply[#reply + 1] = told
end
return reply
