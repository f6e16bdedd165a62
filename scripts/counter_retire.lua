-- counter_retire: ends a counter, so that its numbers can go on elsewhere: from now on every INCRBY
-- overflows, and the last value handed out is noted. A repeat gets the same reply. Setting the
-- counter undoes it.
-- Uses   format clock integer word incarnation int64 counter
-- KEYS   [1] the counter (string, signed 64-bit decimal)  [2] its record (string)  [3] the marker
--        of its slot (string)  [4] the last value handed out (string)
-- ARGV   [1] facts, see lib/incarnation
-- Reply  {'ok', last} the last value that was handed out | {'unknown'} never used |
--        {'not-in-order'} state may have been lost: add to it first | {'not-an-integer'}
-- Units  last is a string, since a Lua number loses digits above 2^53
-- Effect writes
local counter, record, marker, ended = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local largest = '9223372036854775807'
local value, fit = read_counter(counter)
if not fit then
  return {'not-an-integer'}
end
local last = redis.call('GET', ended)
refuse_newer('counter', last)
read_record(record) -- refuses a newer one before anything is written
if value == largest and last then
  redis.call('SET', ended, last)
  return {'ok', last}
end
if not value then
  return {'unknown'}
end
if not in_order(record, marker, '', read_facts(ARGV[1])) then
  return {'not-in-order'}
end
redis.call('SET', ended, value)
redis.call('SET', counter, largest)
redis.call('PERSIST', record)
return {'ok', value}
