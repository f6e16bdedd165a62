-- ledger_append: writes one charge of the demo's ledger. On purpose it does not look for an equal
-- one: the demo shows a second charge.
-- Uses   clock
-- KEYS   [1] the ledger (sorted set by time, at most 10,000 entries, the oldest thousand go first)
-- ARGV   [1] the entry, JSON with an id of its own
-- Reply  {'ok', charged at}
-- Units  times in milliseconds since 1970 of this server
-- Effect writes
if redis.call('ZCARD', KEYS[1]) >= 10000 then
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, 999)
end
redis.call('ZADD', KEYS[1], now_us_text, ARGV[1])
return {'ok', now_text}
