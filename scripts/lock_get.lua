-- lock_get: shows a lock's holders and waiters. It shows no token.
-- Uses   format clock integer lock lock_line
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set,
--        tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)
-- ARGV   [1] how many waiters to show, 1 or more  [2] how many holders to show
-- Reply  {'ok', now, last fence, mode, permits in all, holders shown, waiters, further holders,
--        record…} mode is '' for a free lock; a holder's record is 'fence since until permits
--        owner', a waiter's 'mode permits since owner', in the order of arrival. An unknown fence,
--        since or until is 0, and so is an until that never comes
-- Units  times in milliseconds since 1970 of this server; a waiter's since in microseconds
-- Effect none
local last_grant = redis.call('GET', KEYS[2])
refuse_newer('lock', last_grant) -- it says so for all keys of the lock
local state = read_lock(redis.call('GET', KEYS[1]), last_grant, KEYS[5])
local reply = {'ok', now_text, state.last.number or '0', state.kind, integer(state.capacity), '0', '0', '0'}
local function show(...)
  reply[#reply + 1] = table.concat({...}, ' ')
end

if state.kind == 'x' then
  local till = integer(math.max(0, redis.call('PTTL', KEYS[1])))
  till = till ~= '0' and integer(now + tonumber(till)) or '0'
  if state.last.token == string.sub(state.value, 1, 22) then
    show(state.last.number, state.last.since, till, '1', string.sub(state.value, 23))
  else
    show('0', '0', till, '1', '') -- a client of redislock: what follows its token is not known, since the token may have any length
  end
end
local most, further = tonumber(ARGV[2]), 0
for _, holder in pairs(state.together) do
  if #reply - 8 < most then
    show(read_whole(holder).fence, holder.since, integer(holder.till), integer(holder.permits), holder.owner)
  else
    further = further + 1
  end
end
reply[6], reply[8] = integer(#reply - 8), integer(further)
local first = first_in_line(KEYS[3])
local line = redis.call('ZRANGEBYSCORE', KEYS[3], '0', '+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[1])
if first then
  reply[7] = integer(redis.call('ZCARD', KEYS[3]) - redis.call('ZRANK', KEYS[3], first))
end
for i = 1, #line, 2 do
  local waiter = read_waiter(KEYS[4], line[i])
  if waiter then
    show(waiter.mode, integer(waiter.permits), integer(tonumber(line[i + 1])), waiter.owner)
  end
end
return reply
