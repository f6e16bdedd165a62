-- token_complete: records the answer of the attempt that holds the claim, for the retention that
-- the claim has noted. A late owner is accepted until another attempt has taken over; repeating it
-- is harmless, and does not keep the answer for longer.
-- Uses   format integer awaited under_way answer
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] answer, any bytes  [3] channel of the waiting
-- Reply  {'ok'} | {'already'} this owner's answer is recorded | {'stale'} the claim is another's,
--        or was given back | {'gone'} no such record
-- Units  the retention is in milliseconds
-- Effect writes on ok and already; a repeat writes the same again, so that its acknowledgement has
--        something to wait for
local record = redis.call('HMGET', KEYS[1], 'state', 'owner', 'awaited', 'keep')
refuse_newer('token', record[1])
if not record[1] then
  return {'gone'}
end
if record[2] ~= ARGV[1] or record[1] == 'issued' then
  return {'stale'}
end
unlist() -- before what may add something, see lib/under_way
if record[1] == 'completed' then
  redis.call('HSET', KEYS[1], 'state', 'completed')
  return {'already'}
end
record_answer(ARGV[2], record[4])
tell_waiting(record[3], KEYS[1], ARGV[3])
return {'ok'}
