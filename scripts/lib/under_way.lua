-- under_way: the list of operations whose attempt has begun and has no answer, by the end of its
-- lease, in KEYS[2]. The name of an operation stands in the braces of KEYS[1]. An operation past
-- its end is in doubt. When memory is full, Redis refuses a script by its first write, and only if
-- that may add something. So a script that first removes an operation runs, a running attempt can
-- end, and no operation is in doubt because Redis is full.
local function list_until(lease_end)
  redis.call('ZADD', KEYS[2], lease_end, string.match(KEYS[1], '{(.*)}'))
end
local function unlist()
  redis.call('ZREM', KEYS[2], string.match(KEYS[1], '{(.*)}'))
end
