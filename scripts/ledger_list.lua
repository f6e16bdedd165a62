-- ledger_list: the newest charges of the demo's ledger, oldest first.
-- Uses   none
-- KEYS   [1] the ledger (sorted set by time)
-- ARGV   [1] the largest number of charges
-- Reply  {'ok', charges in all, entry, charged at, entry, charged at…}
-- Units  charged at in microseconds since 1970 of this server
-- Effect none
local reply = {'ok', tostring(redis.call('ZCARD', KEYS[1]))}
for _, part in ipairs(redis.call('ZRANGE', KEYS[1], -tonumber(ARGV[1]), -1, 'WITHSCORES')) do
  reply[#reply + 1] = part
end
return reply
