-- operation_settle: ends the doubt about an operation, as an operator decided after a look at its
-- effect, or as a resolver has found out. It is refused while an attempt may still run, and to an
-- operator while a resolver asks. It ends the claim of the attempt in doubt.
-- Uses   format clock integer awaited under_way answer
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] completed: the answer is recorded, for the retention that the claim has noted |
--        not-begun: the next request may begin | refused: no request may
--        [2] the answer, '' unless completed  [3] digest of the decision  [4] channel of the
--        waiting  [5] the resolver's secret, of operation_resolve; '' = an operator
-- Reply  {'ok'} | {'already'} it was settled so before | {'running', remaining lease}
--        | {'stale'} it is not this resolver's any more | {'not-in-doubt', state} it is issued or
--        completed | {'unknown'} no such record
-- Units  spans in milliseconds
-- Effect writes on ok and already; a repeat writes the same again, so that its acknowledgement has
--        something to wait for
local outcome, decision = ARGV[1], ARGV[3]
local record = redis.call('HMGET', KEYS[1], 'state', 'until', 'decision', 'awaited', 'claimable', 'keep', 'resolver', 'resolve_until')
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
local resolver = record[7] or ''
if ARGV[5] ~= '' and ARGV[5] ~= resolver then
  return {'stale'}
end
local busy_until = tonumber(record[2])
if ARGV[5] == '' and resolver ~= '' then
  busy_until = math.max(busy_until, tonumber(record[8]))
end
if busy_until > now then
  return {'running', integer(busy_until - now)}
end
unlist()
redis.call('HSET', KEYS[1], 'owner', '', 'settled', outcome, 'decision', decision, 'policy', 'hold')
redis.call('HDEL', KEYS[1], 'resolver', 'resolve_until', 'asked')
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
