-- counter_set: sets a counter, or removes it. Processes that have seen larger values learn from the
-- record that it was set back on purpose.
-- Uses   format clock integer word incarnation int64 counter
-- KEYS   [1] the counter (string, signed 64-bit decimal)  [2] its record (string)  [3] the marker
--        of its slot (string)
-- ARGV   [1] value, '' to remove it  [2] TTL, 0 for none  [3] retention of a removed counter's
--        record  [4] any | forward: forward refuses a value below the counter, or below what a
--        process has reported of it, and a counter that holds no integer  [5] what the counter has
--        to be: '' for anything, * for there, or values with a space between  [6] what it must not
--        be: the same  [7] facts, see lib/incarnation
-- Reply  {'ok', previous} '' for none, or for a value that is no integer | {'unknown'} there was
--        none to remove | {'condition'} it is not as ARGV[5] and [6] say | {'not-an-integer'} it
--        holds none, with forward | {'past', largest} it is past the value, with forward
--        | a refusal, see lib/incarnation
-- Units  ARGV[2] and [3] milliseconds
-- Effect writes on ok
local counter, record, marker = KEYS[1], KEYS[2], KEYS[3]
local value, ttl = ARGV[1], tonumber(ARGV[2])
local previous, fit = read_counter(counter)
if value == '' and fit and not previous then
  return {'unknown'}
end
-- matches reports whether the counter is as a list of values says. What is no integer is there, and
-- is none of them.
local function matches(list)
  return list == '*' and (previous or not fit) or previous and fit and string.find(' ' .. list .. ' ', ' ' .. previous .. ' ', 1, true)
end
if ARGV[5] ~= '' and not matches(ARGV[5]) or ARGV[6] ~= '' and matches(ARGV[6]) then
  return {'condition'}
end
if ARGV[4] == 'forward' and not fit then
  return {'not-an-integer'}
end
local _, life, said, ended = read_record(record)
if ended and now >= ended then -- it was of a generation that is over
  said = nil
end
local largest = fit and previous or said
if said and smaller(largest, said) then
  largest = said
end
if ARGV[4] == 'forward' and largest and smaller(value, largest) then
  return {'past', largest}
end
local era, _, first, refusal = read_era(marker, '', 0, previous or life or not fit, read_facts(ARGV[7]))
if refusal then
  return refusal
end
if not fit or not previous or value == '' or smaller(value, previous) then
  life = next_life(life)
end
if value == '' then
  redis.call('DEL', counter)
elseif ttl > 0 then
  redis.call('SET', counter, value, 'PX', ttl)
else
  redis.call('SET', counter, value)
end
local ends = value ~= '' and ttl > 0 and now + ttl or nil
if life or not first or ends then
  write_record(record, era, life or '0', counter, tonumber(ARGV[3]), nil, ends)
end
return {'ok', fit and previous or ''}
