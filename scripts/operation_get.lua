-- operation_get: shows the state of an operation, or of an issued token.
-- Uses   format clock integer
-- KEYS   [1] the token's record (hash)
-- ARGV   none
-- Reply  {'unknown'} | {'ok', state, route, request id, fence, attempts, policy, began at, lease
--        until, expires at, settled, scope, whose, asks}; state is issued, claimed, in-doubt or
--        completed; settled is '' or the last decision of an operator; whose is '' where it is not
--        noted; asks is '1' if a resolver may be asked; a number or time that never was is 0
-- Units  times in milliseconds since 1970 of this server
-- Effect none
local record = redis.call('HMGET', KEYS[1], 'state', 'route', 'request', 'fence', 'attempts', 'policy', 'began', 'until', 'settled', 'scope', 'whose', 'asks')
local state = record[1]
refuse_newer('token', state)
if not state then
  return {'unknown'}
end
if state == 'claimed' and tonumber(record[8]) <= now then
  state = 'in-doubt'
end
return {'ok', state, record[2] or '', record[3] or '', record[4] or '0', record[5] or '0', record[6] or '', record[7] or '0',
  record[8] or '0', integer(now + redis.call('PTTL', KEYS[1])), record[9] or '', record[10] or '', record[11] or '', record[12] or ''}
