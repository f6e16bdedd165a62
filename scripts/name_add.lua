-- name_add: writes a name into the list of names of one kind, so that it can be listed. Repeating
-- it is harmless.
-- Uses   none
-- KEYS   [1] the list (sorted set, all scores 0)
-- ARGV   [1] name
-- Reply  {'ok'}
-- Units  none
-- Effect writes
redis.call('ZADD', KEYS[1], 0, ARGV[1])
return {'ok'}
