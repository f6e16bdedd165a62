-- token_extend: the heartbeat of the attempt that holds the claim. A lease of 0 says that the
-- attempt ended without an answer: the token is in doubt from now on, also if that attempt had
-- recorded one, which it takes back.
-- Uses   format clock integer retain awaited under_way
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] lease, '' for the one it was claimed with  [3] how long the record stays
--        while there is no answer  [4] channel of the waiting
-- Reply  {'ok', lease until} | {'stale'} the claim is no longer this owner's | {'gone'} no such
--        record
-- Units  ARGV[2], ARGV[3] milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok only; takes up to four operations whose records have ended off the list
local record = redis.call('HMGET', KEYS[1], 'state', 'owner', 'lease', 'awaited')
refuse_newer('token', record[1])
if not record[1] then
  return {'gone'}
end
local lease = ARGV[2]
if record[2] ~= ARGV[1] or record[1] == 'issued' or (record[1] == 'completed' and lease ~= '0') then
  return {'stale'}
end
if lease == '' then
  lease = record[3]
end
local lease_end = integer(now + tonumber(lease))
unlist()
list_until(lease_end, now, ARGV[3])
redis.call('HSET', KEYS[1], 'state', 'claimed', 'until', lease_end)
if record[1] == 'completed' then
  redis.call('HDEL', KEYS[1], 'answer', 'size')
end
keep_for(KEYS[1], ARGV[3])
if lease == '0' then
  tell_waiting(record[4], KEYS[1], ARGV[4])
end
return {'ok', lease_end}
