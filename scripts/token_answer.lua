-- token_answer: returns the recorded answer of an operation that is too large for a claim's reply.
-- Uses   none
-- KEYS   [1] the token's record (hash)
-- ARGV   none
-- Reply  {'ok', answer} | {'gone'} no such record, or it has no answer
-- Units  none
-- Effect none
local answer = redis.call('HGET', KEYS[1], 'answer')
if not answer then
  return {'gone'}
end
return {'ok', answer}
