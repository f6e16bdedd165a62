-- answer: records an answer, and its size if it is too large for the reply of a claim.
local function record_answer(text)
  redis.call('HSET', KEYS[1], 'state', 'completed', 'answer', text)
  if #text > 16384 then
    redis.call('HSET', KEYS[1], 'size', #text)
  end
end
