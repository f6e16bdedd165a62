-- token_release: gives a claim back, so that the next request may begin. Only for an attempt that
-- provably never began; repeating it is harmless. An issued token waits for its next claim, and
-- expires as it would have without the claim. A client's own key without another attempt is
-- removed, if the clock is past its fence, so that the next fence is larger.
-- Uses   format clock integer awaited under_way
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] channel of the waiting
-- Reply  {'ok'} | {'forgotten'} the record is removed | {'answered'} an answer is recorded, so that
--        no claim can be granted | {'stale'} the claim is not this owner's, or not yet
--        | {'gone'} no such record, and the operation is off the list
-- Units  times in milliseconds since 1970 of this server
-- Effect writes on ok, forgotten and gone; a repeat writes again, so that its acknowledgement has
--        something to wait for
local record = redis.call('HMGET', KEYS[1], 'state', 'owner', 'awaited', 'claimable', 'scope', 'attempts', 'fence')
refuse_newer('token', record[1])
if not record[1] then
  unlist()
  redis.call('HSET', KEYS[1], 'state', 'issued') -- an acknowledgement is of a write
  redis.call('DEL', KEYS[1])
  return {'gone'}
end
if record[1] == 'completed' then
  return {'answered'}
end
if record[2] ~= ARGV[1] then
  return {'stale'}
end
unlist()
tell_waiting(record[3], KEYS[1], ARGV[2])
if not record[5] and record[6] == '1' and tonumber(record[7]) < now_us then -- issued tokens have a scope
  redis.call('DEL', KEYS[1])
  return {'forgotten'}
end
redis.call('HSET', KEYS[1], 'state', 'issued')
if record[4] then
  redis.call('PEXPIRE', KEYS[1], integer(math.max(tonumber(record[4]) - now, 100))) -- the embedded store keeps nothing for less
end
return {'ok'}
