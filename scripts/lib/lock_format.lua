-- lock_format: reads a lock's last grant, and refuses a lock of a newer format (lib/format): that
-- record says it for all keys of the lock. It comes before all else, also before redislock's own
-- script where that is a part of the call.
local last_grant = redis.call('GET', KEYS[2])
refuse_newer('lock', last_grant)
