-- counter_get: reads a counter.
-- Uses   none
-- KEYS   [1] the counter (string, signed 64-bit decimal)
-- ARGV   none
-- Reply  {'ok', value} the text that is stored: whether it is an integer is for the caller to judge
--        | {'unknown'} never used | {'not-an-integer'} another kind of value is there
-- Units  value is a string, since a Lua number loses digits above 2^53
-- Effect none
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' and value.err then
  if string.find(value.err, 'WRONGTYPE', 1, true) then
    return {'not-an-integer'}
  end
  return value
end
if not value then
  return {'unknown'}
end
return {'ok', value}
