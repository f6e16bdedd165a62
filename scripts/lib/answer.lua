-- answer: records an answer, which stays for `keep` milliseconds from now, and its size if it is
-- too large for the reply of a claim.
local function record_answer(text, keep)
  redis.call('HSET', KEYS[1], 'state', 'completed', 'answer', text)
  if #text > 16384 then
    redis.call('HSET', KEYS[1], 'size', #text)
  end
  redis.call('PEXPIRE', KEYS[1], keep)
end
