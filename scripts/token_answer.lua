-- token_answer: returns the recorded answer of an operation that is too large for a claim's reply.
-- Uses   format
-- KEYS   [1] the token's record (hash)
-- ARGV   none
-- Reply  {'ok', answer} | {'gone'} no such record, or it has no answer
-- Units  none
-- Effect none
local record = redis.call('HMGET', KEYS[1], 'state', 'answer')
refuse_newer('token', record[1])
if not record[2] then
  return {'gone'}
end
return {'ok', record[2]}
