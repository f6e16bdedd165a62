-- page: reads a page of a sorted set by score, in a bounded number of steps unless very many
-- members have one score.
-- before compares by bytes, as Redis orders members of one score; the operator < goes by the
-- locale.
local function before(a, b)
  local i = 1
  while i <= #a and string.byte(a, i) == string.byte(b, i) do
    i = i + 1
  end
  return (string.byte(a, i) or -1) < (string.byte(b, i) or -1)
end

-- page_after appends to a reply the next members after one, `last` with its score, up to another
-- score: two values for each, the member and its score.
local function page_after(reply, key, last_score, last, up_to, wanted)
  local skipped = 0
  while wanted > 0 do
    local page = redis.call('ZRANGEBYSCORE', key, last_score, up_to, 'WITHSCORES', 'LIMIT', skipped, wanted)
    for i = 1, #page, 2 do
      if page[i + 1] ~= last_score or before(last, page[i]) then
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
end
