-- operation_get: shows the state of an operation, or of an issued token.
-- Uses   format clock integer record words
-- KEYS   [1] the operation's record (string, lib/record)
-- ARGV   none
-- Reply  {'unknown'} | {'ok', state, route, request id, fence, attempts, policy, began at, lease
--        until, expires at, settled, scope, whose, asks}; state is issued, claimed, in-doubt,
--        refused or completed; settled is '' or the last decision of an operator; whose is ''
--        where it is not noted; asks is '1' if a resolver may be asked; a number or time that
--        never was is 0
-- Units  times in milliseconds since 1970 of this server
-- Effect none
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
local state = state_of(text)
if not state then
  return {'unknown'}
end
local record = words_of(text)
if state == 'claimed' and tonumber(record['until']) <= now then
  state = record.settled == 'refused' and 'refused' or 'in-doubt'
end
local function number(word)
  return word ~= '' and word or '0'
end
local route = record.attempts ~= '' and record.route == '' and record.scope or record.route
return {'ok', state, route, record.request, number(record.fence), number(record.attempts), record.policy, number(record.began),
  number(record['until']), integer(now + redis.call('PTTL', KEYS[1])), record.settled, record.scope, record.whose, record.asks}
