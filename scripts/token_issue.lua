-- token_issue: stores a one-use token, ready to be claimed once. A repeat with the same token gets
-- the same reply.
-- Uses   format clock integer record touch
-- KEYS   [1] the operation's record (string, lib/record)
-- ARGV   [1] how long the token may wait for its claim  [2] scope, '' for none
-- Reply  {'ok', expires at} | {'exists'} the token was issued before and has been used since
-- Units  ARGV[1] milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok; a repeat writes the same again, so that its acknowledgement has something to
--        wait for
local text = redis.call('GET', KEYS[1])
local state = state_of(text)
if state and state ~= 'issued' then
  return {'exists'}
end
if state then
  touch()
  return {'ok', integer(now + redis.call('PTTL', KEYS[1]))}
end
local ends = integer(now + ARGV[1])
redis.call('SET', KEYS[1], 'issued\t\t\t\t' .. ARGV[2] .. '\t\t\t\t\t\t\t\t\t\t\t\t' .. ends .. '\t\t\t\t\t\t\n', 'PX', ARGV[1])
return {'ok', ends}
