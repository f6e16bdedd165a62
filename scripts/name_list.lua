-- name_list: a page of a list of names, in the order of their bytes.
-- Uses   none
-- KEYS   [1] the list (sorted set, see name_add)
-- ARGV   [1] what the names begin with, may be ''  [2] the name behind which the page begins, '' for the first page  [3] how many at most
-- Reply  {'ok', name…}
-- Units  none
-- Effect none
local from = ARGV[2] == '' and '[' .. ARGV[1] or '(' .. ARGV[2]
if ARGV[2] ~= '' and ARGV[2] < ARGV[1] then
  from = '[' .. ARGV[1]
end
local reply = {'ok'}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], from, '[' .. ARGV[1] .. '\255', 'LIMIT', 0, ARGV[3])) do
  reply[#reply + 1] = name
end
return reply
