-- operation_count: counts the operations in doubt, in steps that do not grow with their number.
-- Uses   clock integer
-- KEYS   [1] the operations under way (sorted set, see lib/under_way)
-- ARGV   none
-- Reply  {'ok', how many}
-- Units  none
-- Effect none
local listed = redis.call('ZCOUNT', KEYS[1], '(0', now_text)
-- records that have ended are listed until a later claim takes them off
local ended = redis.call('ZCOUNT', KEYS[1], '-' .. now_text, '(0')
return {'ok', integer(math.max(listed - ended, 0))}
