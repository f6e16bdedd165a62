-- token_release: gives a claim back, so that the next request may begin. Only for an attempt that
-- provably never began; repeating it is harmless. An issued token waits for its next claim, and
-- expires as it would have without the claim. A client's own key without another attempt is
-- removed, if the clock is past its fence, so that the next fence is larger.
-- Uses   format clock integer record words under_way awaited
-- KEYS   [1] the operation's record (string, lib/record)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] channel of the waiting
-- Reply  {'ok'} | {'forgotten'} the record is removed | {'answered'} an answer is recorded, so that
--        no claim can be granted | {'stale'} the claim is not this owner's, or not yet
--        | {'gone'} no such record, and the operation is off the list
-- Units  times in milliseconds since 1970 of this server
-- Effect writes on ok, forgotten and gone; a repeat writes again, so that its acknowledgement has
--        something to wait for
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
local state = state_of(text)
if not state then
  unlist()
  redis.call('SET', KEYS[1], '') -- an acknowledgement is of a write
  redis.call('DEL', KEYS[1])
  return {'gone'}
end
if state == 'completed' then
  return {'answered'}
end
local record = words_of(text)
if record.owner ~= ARGV[1] or ARGV[1] == '' then
  return {'stale'}
end
unlist()
tell_waiting(record.awaited, ARGV[2])
if record.claimable == '' and record.attempts == '1' and tonumber(record.fence) < now_us then
  redis.call('DEL', KEYS[1])
  return {'forgotten'}
end
record.state = 'issued'
redis.call('SET', KEYS[1], record_of(record), 'KEEPTTL')
if record.claimable ~= '' then
  redis.call('PEXPIRE', KEYS[1], integer(math.max(tonumber(record.claimable) - now, 100))) -- the embedded store keeps nothing for less
end
return {'ok'}
