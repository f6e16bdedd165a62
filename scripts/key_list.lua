-- key_list: all API keys.
-- Uses   format
-- KEYS   [1] the keys (hash, see key_add)
-- ARGV   none
-- Reply  {'ok', then for each key its id and its record, which begins with the second of adding}
-- Units  the second since 1970
-- Effect none
local reply = {'ok'}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  refuse_newer('key', all[i + 1])
  reply[i + 1], reply[i + 2] = all[i], all[i + 1]
end
return reply
