-- operation_list: a page of the operations in doubt, the longest in doubt first.
-- Uses   clock integer
-- KEYS   [1] the operations under way (sorted set, by the end of the attempt's lease)
-- ARGV   [1] the end and [2] the operation after which the page begins, '0' and '' for the first
--        page  [3] the largest number of operations
-- Reply  {'ok', operation, in doubt since…}, two values for each
-- Units  times in milliseconds since 1970 of this server
-- Effect none

-- before compares by bytes, as Redis orders members of one score; the operator < goes by the
-- locale.
local function before(a, b)
  local i = 1
  while i <= #a and string.byte(a, i) == string.byte(b, i) do
    i = i + 1
  end
  return (string.byte(a, i) or -1) < (string.byte(b, i) or -1)
end

local last_end, last, wanted = ARGV[1], ARGV[2], tonumber(ARGV[3])
local reply, skipped = {'ok'}, 0
while wanted > 0 do
  local page = redis.call('ZRANGEBYSCORE', KEYS[1], last_end, integer(now), 'WITHSCORES', 'LIMIT', skipped, wanted)
  for i = 1, #page, 2 do
    if page[i + 1] ~= last_end or before(last, page[i]) then
      reply[#reply + 1] = page[i]
      reply[#reply + 1] = integer(tonumber(page[i + 1]))
      wanted = wanted - 1
    end
  end
  if #page == 0 then
    break
  end
  skipped = skipped + #page / 2
end
return reply
