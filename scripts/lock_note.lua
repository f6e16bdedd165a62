-- lock_note: keeps a lock's name on the list of held locks, for as long as a lease of it lasts, and
-- never shortens that; or takes it off. Names whose leases have ended go by themselves.
-- Uses   clock integer retain
-- KEYS   [1] the list (sorted set, names by the end of the lease)
-- ARGV   [1] name  [2] remaining lease; 0 = off the list
-- Reply  {'ok'}
-- Units  ARGV[2] milliseconds
-- Effect writes
local life = tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', integer(now))
if life == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return {'ok'}
end
local till = math.max(now + life, tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0))
redis.call('ZADD', KEYS[1], integer(till), ARGV[1])
keep_for(KEYS[1], ARGV[2])
return {'ok'}
