-- token_issue: stores a one-use token, ready to be claimed once. A repeat with the same token gets
-- the same reply.
-- Uses   format clock integer
-- KEYS   [1] the token's record (hash)
-- ARGV   [1] how long the token may wait for its claim  [2] scope, '' for none
-- Reply  {'ok', expires at} | {'exists'} the token was issued before and has been used since
-- Units  ARGV[1] milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok; a repeat writes the same again, so that its acknowledgement has something to
--        wait for
local state = redis.call('HGET', KEYS[1], 'state')
refuse_newer('token', state)
if state and state ~= 'issued' then
  return {'exists'}
end
if state then
  redis.call('HSET', KEYS[1], 'state', 'issued')
else
  redis.call('HSET', KEYS[1], 'state', 'issued', 'scope', ARGV[2], 'claimable', integer(now + tonumber(ARGV[1])))
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return {'ok', integer(now + redis.call('PTTL', KEYS[1]))}
