-- lock_names: lists the names that lock_note keeps, in no order that matters.
-- Uses   clock integer
-- KEYS   [1] the list (sorted set, names by the end of the lease)
-- ARGV   none
-- Reply  {'ok', name…}
-- Units  none
-- Effect none
local reply = {'ok'}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. integer(now), '+inf')) do
  reply[#reply + 1] = name
end
return reply
