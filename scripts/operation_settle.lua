-- operation_settle: ends the doubt about an operation as an operator decided after a look at its
-- effect. It is refused while an attempt may still run. It ends the claim of the attempt in doubt.
-- Uses   format clock integer awaited under_way answer
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] completed: the answer is recorded, for the retention that the claim has noted |
--        not-begun: the next request may begin | refused: no request may
--        [2] the answer, '' unless completed  [3] digest of the decision  [4] channel of the
--        waiting
-- Reply  {'ok'} | {'already'} it was settled so before | {'running', remaining lease}
--        | {'not-in-doubt', state} it is issued or completed | {'unknown'} no such record
-- Units  spans in milliseconds
-- Effect writes on ok and already; a repeat writes the same again, so that its acknowledgement has
--        something to wait for
local outcome, decision = ARGV[1], ARGV[3]
local record = redis.call('HMGET', KEYS[1], 'state', 'until', 'decision', 'awaited', 'claimable', 'keep')
local state = record[1]
refuse_newer('token', state)
if not state then
  return {'unknown'}
end
if state ~= 'claimed' then
  if record[3] ~= decision then
    return {'not-in-doubt', state}
  end
  unlist() -- before what may add something, see lib/under_way
  redis.call('HSET', KEYS[1], 'decision', decision)
  return {'already'}
end
local left = tonumber(record[2]) - now
if left > 0 then
  return {'running', integer(left)}
end
unlist()
redis.call('HSET', KEYS[1], 'owner', '', 'settled', outcome, 'decision', decision, 'policy', 'hold')
if outcome == 'completed' then
  record_answer(ARGV[2], record[6])
elseif outcome == 'not-begun' then
  redis.call('HSET', KEYS[1], 'state', 'issued')
  if record[5] then -- an issued token waits for its claim as long as it stays
    redis.call('HSET', KEYS[1], 'claimable', integer(math.max(tonumber(record[5]), now + tonumber(record[6]))))
  end
end
tell_waiting(record[4], KEYS[1], ARGV[4])
return {'ok'}
