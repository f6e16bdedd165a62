-- counter_get: reads a counter.
-- Uses   format
-- KEYS   [1] the counter (string, signed 64-bit decimal)
-- ARGV   none
-- Reply  {'ok', value} the stored text: the caller judges whether it is an integer
--        | {'unknown'} never used | {'not-an-integer'} the key holds another type
-- Units  value is a string, since a Lua number loses digits above 2^53
-- Effect none
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then
  if string.find(value.err, 'WRONGTYPE', 1, true) then
    return {'not-an-integer'}
  end
  return value
end
refuse_newer('counter', value)
if not value then
  return {'unknown'}
end
return {'ok', value}
