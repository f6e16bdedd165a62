-- key_list: all API keys.
-- Uses   none
-- KEYS   [1] the keys (hash, see key_add)
-- ARGV   none
-- Reply  {'ok', then for each key its id and its record, which begins with the second of adding}
-- Units  the second since 1970
-- Effect none
local reply = {'ok'}
for _, text in ipairs(redis.call('HGETALL', KEYS[1])) do
  reply[#reply + 1] = text
end
return reply
