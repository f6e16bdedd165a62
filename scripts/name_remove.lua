-- name_remove: takes a name off a list of names. Repeating it is harmless.
-- Uses   none
-- KEYS   [1] the list (sorted set, see name_add)
-- ARGV   [1] name
-- Reply  {'ok'}
-- Units  none
-- Effect writes
redis.call('ZREM', KEYS[1], ARGV[1])
return {'ok'}
