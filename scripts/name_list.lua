-- name_list: a page of a list of names, in the order of their bytes.
-- Uses   none
-- KEYS   [1] the list (sorted set, see name_add)
-- ARGV   [1] prefix of the names, may be ''  [2] the name after which the page begins, '' for the
--        first page  [3] the largest number of names
-- Reply  {'ok', name…}
-- Units  none
-- Effect none

-- before compares by bytes, as Redis orders the names; the operator < goes by the server's locale.
local function before(a, b)
  local i = 1
  while i <= #a and string.byte(a, i) == string.byte(b, i) do
    i = i + 1
  end
  return (string.byte(a, i) or -1) < (string.byte(b, i) or -1)
end

local from = before(ARGV[2], ARGV[1]) and '[' .. ARGV[1] or '(' .. ARGV[2]
local reply = {'ok'}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], from, '[' .. ARGV[1] .. '\255', 'LIMIT', 0, ARGV[3])) do
  reply[#reply + 1] = name
end
return reply
