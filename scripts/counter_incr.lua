-- counter_incr: adds to a counter where one INCRBY is not enough: up to a limit, or with a
-- request's record, so that a repeat gets the first value again and adds nothing, or with a TTL, or
-- where the counter may begin. The call that begins a counter decides whether it ends: its TTL
-- comes together with the first value, and a later call with a TTL is refused if the counter has no
-- end.
-- Uses   format clock integer word incarnation int64 counter
-- KEYS   [1] the counter (string, signed 64-bit decimal)  [2] its record (string)  [3] the marker
--        of its slot (string)  [4] the request's record (string 'value by'), only when ARGV[2] > 0
-- ARGV   [1] by, 1 or more  [2] retention of the request's record, 0 for none  [3] floor: a value
--        that the process has seen; '' if it found no counter, so that this call may begin it
--        [4] the largest value allowed, '' for no limit; with it no value below 0 is added  [5] the
--        era in which the process found the counter in order  [6] TTL of a counter that begins, 0
--        for none  [7] begin | give: whether that TTL is only for a counter that begins, or also
--        for a counter without an end  [8] facts, see lib/incarnation
-- Reply  {'ok', value, left, now} left is its TTL, -1 for none | {'again', value, -1, now} the
--        request was made before | {'behind'} open the counter first: it is below the floor, or has
--        gone although it has one, or was not found in order in this incarnation and era |
--        {'permanent', value} it has no end, with a TTL and begin | {'limit'} | {'negative'} |
--        {'not-an-integer'} | {'overflow'} | {'mismatch'} the request was made with another `by`
-- Units  ARGV[2], ARGV[6], left and now in milliseconds; value is a string, since a Lua number
--        loses digits above 2^53
-- Effect writes on ok; a repeat only keeps its record for longer, so that its acknowledgement has
--        something to wait for
local retention, ttl = tonumber(ARGV[2]), tonumber(ARGV[6])
if retention > 0 then
  local seen = redis.call('GET', KEYS[4])
  refuse_newer('counter', seen)
  if seen then
    local value, by = string.match(seen, '^(%S+) (%S+)$')
    if by ~= ARGV[1] then
      return {'mismatch'}
    end
    redis.call('PEXPIRE', KEYS[4], retention)
    return {'again', value, '-1', now_text}
  end
end
local before, fit = read_counter(KEYS[1])
if not fit then
  return {'not-an-integer'}
end
if not in_order(KEYS[2], KEYS[3], ARGV[5], read_facts(ARGV[8])) then
  return {'behind'}
end
if ARGV[3] ~= '' and (not before or smaller(before, ARGV[3])) then
  return {'behind'}
end
local given = before and ttl > 0 and redis.call('PTTL', KEYS[1]) == -1
if given and ARGV[7] ~= 'give' then
  return {'permanent', before}
end
local era, life, said, ended
if not before or given then
  era, life, said, ended = read_record(KEYS[2])
end
if not before and (said or ended and now >= ended) then -- it was used since the process found none
  return {'behind'}
end
if ARGV[4] ~= '' and before and smaller(before, '-1') then
  return {'negative'}
end
local sum = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(sum) == 'table' then
  return overflows(sum) and {'overflow'} or sum
end
local value = redis.call('GET', KEYS[1])
if ARGV[4] ~= '' and smaller(ARGV[4], value) then
  if before then
    redis.call('DECRBY', KEYS[1], ARGV[1])
  else
    redis.call('DEL', KEYS[1])
  end
  return {'limit'}
end
if ttl > 0 and (given or not before) then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
if given then -- others have used it without an end: they learn of it from the record
  local _, noted = read_marker(KEYS[3])
  write_record(KEYS[2], era or noted, life or '0', KEYS[1], -1, said, now + ttl)
elseif era then -- the counter begins: its record ends with it
  write_record(KEYS[2], era, life, KEYS[1], -1, nil, ttl > 0 and now + ttl or nil)
end
if retention > 0 then
  redis.call('SET', KEYS[4], value .. ' ' .. ARGV[1], 'PX', retention)
end
return {'ok', value, integer(math.max(redis.call('PTTL', KEYS[1]), -1)), now_text}
