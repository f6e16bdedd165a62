-- token_complete: records the answer of the attempt that holds the claim. A late owner is accepted
-- until another attempt has taken over; repeating it is harmless.
-- Uses   format integer retain awaited under_way answer
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] answer, any bytes  [3] retention, unless the claim has noted one
--        [4] channel of the waiting
-- Reply  {'ok'} | {'already'} this owner's answer is recorded | {'stale'} the claim is another's,
--        or was given back | {'gone'} no such record
-- Units  ARGV[3] milliseconds
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
record_answer(ARGV[2])
keep_for(KEYS[1], record[4] or ARGV[3])
tell_waiting(record[3], KEYS[1], ARGV[4])
return {'ok'}
