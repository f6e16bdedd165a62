-- token_answer: returns the recorded answer of an operation that is too large for a claim's reply.
-- Uses   format record
-- KEYS   [1] the operation's record (string, lib/record)
-- ARGV   none
-- Reply  {'ok', answer} | {'gone'} no such record, or it has no answer
-- Units  none
-- Effect none
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
if state_of(text) ~= 'completed' then
  return {'gone'}
end
return {'ok', redis.call('GETRANGE', KEYS[1], string.find(text, '\n', 1, true), -1)}
