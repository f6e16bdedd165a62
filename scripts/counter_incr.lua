-- counter_incr: adds to a counter. With a request record the same request asked again gets the value it got first, and adds nothing.
-- Uses   none
-- KEYS   [1] the counter (string, signed 64-bit decimal)  [2] the request's record (string 'value by'); only when ARGV[2] > 0
-- ARGV   [1] by, 1 or more  [2] retention of the request's record, 0 for none
-- Reply  {'ok', value} | {'not-an-integer'} | {'overflow'} | {'mismatch'} the request was made with another `by`
-- Units  ARGV[2] milliseconds; value is a string, since a Lua number loses digits above 2^53
-- Effect writes on ok; a repeat only keeps its record for longer, so that its acknowledgement has something to wait for
local retention = tonumber(ARGV[2])
if retention > 0 then
  local seen = redis.call('GET', KEYS[2])
  if seen then
    local value, by = string.match(seen, '^(%S+) (%S+)$')
    if by ~= ARGV[1] then
      return {'mismatch'}
    end
    redis.call('PEXPIRE', KEYS[2], retention)
    return {'ok', value}
  end
end
local sum = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(sum) == 'table' and sum.err then
  if string.find(sum.err, 'overflow', 1, true) then
    return {'overflow'}
  end
  if string.find(sum.err, 'WRONGTYPE', 1, true) or string.find(sum.err, 'not an integer', 1, true) then
    return {'not-an-integer'}
  end
  return sum
end
local value = redis.call('GET', KEYS[1])
if retention > 0 then
  redis.call('SET', KEYS[2], value .. ' ' .. ARGV[1], 'PX', retention)
end
return {'ok', value}
