-- counter: the parts that counters share. A counter is a plain integer, so that INCRBY adds to it.
-- All counters of a slot share the marker 'word era till first seen further'. word: see lib/word.
-- An era begins when state may have been lost, nothing is handed out until `till`, and `first` is 1
-- until the first loss. seen: when the state was last in use, in seconds, to about ten. further:
-- how many tenths of its margin a counter moves beyond that margin in this era. State without a
-- marker was written by a process whose history is not here: a loss. A counter may have a record
-- beside it, 'era life said ends'. era: the one in which the counter was last found in order. life:
-- its generation, which changes when it is set back on purpose. said: a value that was certainly
-- reached, '-' for none. It is the value to which the counter was moved or, during a hold-off, the
-- largest that a process has reported (the counter does not get that value yet, since INCRBY would
-- go on from it while others may report more). ends: when the counter expires, in milliseconds, if
-- it got a TTL after others may have used it without one.
local function read_marker(marker)
  local text = redis.call('GET', marker)
  refuse_newer('marker', text)
  return string.match(text or '', '^(%S+) (%d+) (%d+) ([01]) ?(%d*) ?(%d*)$')
end

local day = 24 * 3600

-- further_now is how much further counters move after a loss. A state that was lost may have moved
-- from the same values as this one, and handed out what comes after them. It did that earlier, and
-- so less far: by a tenth of the margin for each second since the state was last in use.
local function further_now(era, seen, further)
  local longer = math.min(math.max(now / 1000 - (tonumber(seen) or now) - 3, 0), day)
  if now_us / 1000000 - (tonumber(era) or 0) / 1000000 < day then
    longer = longer + (tonumber(further) or 0)
  end
  return math.floor(longer)
end

-- moved_by is how far a counter with this margin moves, and how much of that is beyond the margin.
local function moved_by(marker, margin)
  local _, _, _, _, _, further = read_marker(marker)
  local beyond = math.floor(tonumber(margin) * (tonumber(further) or 0) / 10)
  return integer(tonumber(margin) + beyond), beyond
end

-- read_era returns the era, the end of a hold-off, and whether nothing was ever lost; or instead a
-- refusal, its fourth value. state: the caller has found a counter or a record.
local function read_era(marker, known, span, state, facts)
  local noted, era, till, first, seen, further = read_marker(marker)
  local at = standing(noted, facts)
  if at.refusal then
    if at.word then
      redis.call('SET', marker, table.concat({at.word, era, till, first, seen, further}, ' '))
    end
    return nil, nil, nil, at.refusal
  end
  local changed = not era or not at.same
  if not era then
    till, first = 0, known == '' and not state and '1' or '0'
  elseif changed or first == '1' and known ~= '' and known ~= era then
    changed, first = true, '0'
  end
  local second = math.floor(now / 1000)
  if changed then
    if known ~= '' and (not era or at.same) then -- everything is gone
      till = now + span
    end
    further = further_now(era, seen, further)
    era = integer(math.max(now_us, (tonumber(era) or 0) + 1))
  end
  if changed or at.word ~= noted or second - (tonumber(seen) or 0) >= 10 then
    redis.call('SET', marker, table.concat({at.word, era, integer(tonumber(till)), first, integer(second), integer(tonumber(further) or 0)}, ' '))
  end
  return era, tonumber(till), first == '1'
end

local function read_record(record)
  local text = redis.call('GET', record)
  refuse_newer('counter', text)
  local era, life, said, ends = string.match((text or '') .. ' - -', '^(%d+) (%d+) (%S+) (%S+)')
  return era, life, said ~= '-' and said or nil, ends and tonumber(ends)
end

local function record_text(era, life, said, ends)
  local text = era .. ' ' .. life
  if said or ends then
    text = text .. ' ' .. (said or '-')
  end
  return ends and text .. ' ' .. integer(ends) or text
end

-- next_life is the life of a counter that begins anew: another one than the last, also within the
-- same microsecond or on a clock that was set back.
local function next_life(life)
  return integer(math.max(now_us, (tonumber(life) or 0) + 1))
end

-- in_order reports whether a counter was found in order in this incarnation, and in the era that
-- the process knows, '' for any.
local function in_order(record, marker, known, facts)
  local noted, era, _, first = read_marker(marker)
  return era and is_same(noted, facts) and (known == '' or era == known) and (first == '1' or era == read_record(record))
end

-- live_for sets a key's TTL. The embedded store has none below 100 ms.
local function live_for(key, ms)
  redis.call('PEXPIRE', key, integer(math.max(ms, 100)))
end

-- remembered is longer than a process remembers a counter that it does not use.
local remembered = 24 * 3600 * 1000

-- write_record writes the record for as long as the counter lives, or for `rest` milliseconds
-- without a counter, -1 for ever. A record that corrects what processes remember is kept for as
-- long as they remember it.
local function write_record(record, era, life, counter, rest, said, ends)
  redis.call('SET', record, record_text(era, life, said, ends))
  local left = redis.call('PTTL', counter)
  if left == -2 then
    left = rest
  elseif left >= 0 and (life ~= '0' or ends) then
    left = left + remembered
  end
  if left >= 0 then
    live_for(record, left)
  end
end

-- read_counter returns the value, or nil, and reports whether the value is an integer or absent.
local function read_counter(counter)
  local value = redis.pcall('GET', counter)
  if type(value) == 'table' then
    if not string.find(value.err, 'WRONGTYPE', 1, true) then
      redis.call('GET', counter) -- such as of a user who may not: it ends the script
    end
    return nil, false
  end
  refuse_newer('counter', value)
  return value or nil, not value or is_int(value)
end

-- put writes a value and keeps the key's TTL.
local function put(counter, value)
  redis.call('SET', counter, value, 'KEEPTTL')
end
