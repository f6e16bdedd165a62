-- operation_settle: ends the doubt about an operation, as an operator decided after a look at its
-- effect, or as a resolver has found out. It is refused while an attempt may still run, and to an
-- operator while a resolver asks. It ends the claim of the attempt in doubt.
-- Uses   format clock integer record words under_way awaited touch
-- KEYS   [1] the operation's record (string, lib/record)  [2] the operations under way (sorted set)
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
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
local state = state_of(text)
if not state then
  return {'unknown'}
end
local record = words_of(text)
if state ~= 'claimed' then
  if record.decision ~= decision then
    return {'not-in-doubt', state}
  end
  unlist() -- before what may add something, see lib/under_way
  touch()
  return {'already'}
end
if ARGV[5] ~= '' and ARGV[5] ~= record.resolver then
  return {'stale'}
end
local busy_until = tonumber(record['until'])
if ARGV[5] == '' and record.resolver ~= '' then
  busy_until = math.max(busy_until, tonumber(record.resolve_until))
end
if busy_until > now then
  return {'running', integer(busy_until - now)}
end
unlist()
record.owner, record.settled, record.decision, record.policy = '', outcome, decision, 'hold'
record.resolver, record.resolve_until, record.asked = '', '', ''
if outcome == 'not-begun' then
  record.state = 'issued'
  if record.claimable ~= '' then -- an issued token waits for its claim as long as it stays
    record.claimable = integer(math.max(tonumber(record.claimable), now + tonumber(record.keep)))
  end
end
if outcome == 'completed' then
  record.state = 'completed'
  redis.call('SET', KEYS[1], record_of(record) .. ARGV[2], 'PX', record.keep)
else
  redis.call('SET', KEYS[1], record_of(record), 'KEEPTTL')
end
tell_waiting(record.awaited, ARGV[4])
return {'ok'}
