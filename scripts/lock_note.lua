-- lock_note: keeps a lock's name on the list of held locks, for as long as a lease of it lasts, and
-- never shortens that; or takes it off. It also takes off up to a thousand whose leases have ended.
-- Uses   clock integer retain
-- KEYS   [1] the list (sorted set, names by the end of the lease)
-- ARGV   [1] name  [2] remaining lease; 0 = off the list
-- Reply  {'ok'}
-- Units  ARGV[2] milliseconds
-- Effect writes
local life = tonumber(ARGV[2])
local till = math.max(now + life, tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1]) or 0))
local ended = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now_text, 'LIMIT', '0', '1000')
redis.call('ZREM', KEYS[1], ARGV[1], unpack(ended)) -- first: a script whose first write adds nothing may go on when memory is full
if life == 0 then
  return {'ok'}
end
redis.call('ZADD', KEYS[1], integer(till), ARGV[1])
keep_for(KEYS[1], integer(math.max(till - now, 100))) -- the embedded store has no shorter expiry
return {'ok'}
