-- counter_open: checks that a counter is in order before a process adds to it by INCRBY, or puts it
-- in order. A counter below the value that the process has seen, or last used before state may have
-- been lost, moves past every value that can have been handed out. After a loss of everything the
-- script first only collects what each process has seen.
-- Uses   format clock integer word incarnation int64 counter
-- KEYS   [1] the counter (string, signed 64-bit decimal)  [2] its record (string)  [3] the marker
--        of its slot (string)
-- ARGV   [1] floor: the largest value of this counter that the process has seen, '' for none
--        [2] the life (generation) of that value, '' for none  [3] when it expires, '' for never
--        [4] margin: how far a counter moves at least, see lib/counter  [5] past | refuse | stay:
--        what a counter that has to move does; with stay it goes on from the larger of what is
--        there and the floor  [6] the era that the process knows of this slot,
--        '' for none  [7] how long to hold off after a loss of everything  [8] the largest value
--        that may be moved, '' for no limit: a larger one is refused as with refuse, since the
--        caller could not use a value past the move  [9] floor, with what the process has added to
--        a counter that was below it: the least that it has to be at now; '' without a floor
--        [10] the largest value that the caller can add to, '' for no limit  [11] facts, see
--        lib/incarnation
-- Reply  {'ok', value, life, era, left, now, moved, id} value '' for a counter without one; left is
--        the TTL, -1 for none; moved 1 if it was moved; id is the incarnation that is noted, see
--        lib/incarnation | {'hold-off', ms, era} | {'behind', value, life, era, why} it has to
--        move and must not, by ARGV[5] or [8]; why: see lib/incarnation, '' if the counter itself
--        went back | {'limit'} it is past ARGV[10] without a move | {'not-an-integer'} |
--        {'overflow'} | a refusal, see lib/incarnation
-- Units  times and TTLs in milliseconds; ARGV[3] and now since 1970-01-01 UTC
-- Effect writes
local counter, record, marker = KEYS[1], KEYS[2], KEYS[3]
local floor, known_life, ends, least = ARGV[1], ARGV[2], ARGV[3], ARGV[9]
local value, fit = read_counter(counter)
if not fit then
  return {'not-an-integer'}
end
local noted, life, said, ended = read_record(record)
local over = ends ~= '' and now >= tonumber(ends)
if ended and now >= ended then -- it has begun again, or is about to
  over, life, said, ended, noted = true, next_life(life), nil, nil, nil
end
if over or life and life ~= known_life then
  floor, least = '', ''
end
local era, till, first, refusal = read_era(marker, ARGV[6], tonumber(ARGV[7]), value or noted, read_facts(ARGV[11]))
if refusal then
  return refusal
end
if till > now then
  if floor ~= '' and noted ~= era and (not said or smaller(said, floor)) then
    redis.call('SET', record, record_text(noted or '0', life or known_life, floor, ended))
    if ends ~= '' then
      live_for(record, tonumber(ends) - now)
    end
  end
  return {'hold-off', integer(till - now), era}
end

if said and (floor == '' or smaller(floor, said)) then
  floor = said
end
if least == '' or smaller(least, floor) then
  least = floor
end
local behind = floor ~= '' and smaller(value or '0', least)
local doubted = not first and noted ~= era and not (over and not noted)
local moved = '0'
if behind or doubted and value then
  local base = behind and not (value and smaller(floor, value)) and floor or value
  local by, beyond = moved_by(marker, ARGV[4])
  if ARGV[5] == 'stay' then
    by = '0'
  elseif ARGV[5] == 'past' and ARGV[10] ~= '' and smaller(ARGV[10], base) then
    return {'limit'}
  elseif ARGV[5] ~= 'past' or ARGV[8] ~= '' and (smaller(ARGV[8], base) or tonumber(ARGV[8]) < tonumber(base) + beyond) then
    return {'behind', value or '', life or '0', era, doubted and why_of(read_marker(marker)) or ''}
  end
  put(counter, base)
  local sum = redis.pcall('INCRBY', counter, by)
  if type(sum) == 'table' then
    return overflows(sum) and {'overflow'} or sum
  end
  if floor ~= '' and redis.call('PTTL', counter) == -1 then -- written anew: it ends when it was known to
    local left = redis.call('PTTL', record)
    if ends ~= '' or ended then
      live_for(counter, (ended or tonumber(ends)) - now)
    elseif said and left > 0 then
      live_for(counter, left)
    end
  end
  value, moved = redis.call('GET', counter), '1'
end
life = life or floor ~= '' and known_life ~= '' and known_life or '0'
if moved == '1' or not first and noted ~= era or life ~= '0' or ended then
  write_record(record, era, life, counter, remembered, moved == '1' and value or said, ended)
end
return {'ok', value or '', life, era, integer(math.max(redis.call('PTTL', counter), -1)), now_text, moved, read_word(read_marker(marker)).id or ''}
