-- token_get: shows the state of a token.
-- Uses   clock integer
-- KEYS   [1] the token's record (hash)
-- ARGV   none
-- Reply  {'unknown'} | {state, expires at, fence, attempts, scope, lease until}; state is issued,
--        claimed, in-doubt or completed; without a fence or lease it is 0
-- Units  times in milliseconds since 1970 of this server
-- Effect none
local record = redis.call('HMGET', KEYS[1], 'state', 'fence', 'attempts', 'scope', 'until')
local state = record[1]
if not state then
  return {'unknown'}
end
if state == 'claimed' and tonumber(record[5]) <= now then
  state = 'in-doubt'
end
return {state, integer(now + redis.call('PTTL', KEYS[1])), record[2] or '0', record[3] or '0', record[4] or '', record[5] or '0'}
