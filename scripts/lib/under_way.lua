-- under_way: the list of operations whose attempt has begun and has no answer, by the end of its
-- lease, in KEYS[2]. The name of an operation stands in the braces of KEYS[1]. An operation past
-- its end is in doubt. It stands there a second time, after '~', by minus the time at which its
-- record ends: what has no record any more is no longer of use, and each operation that is added
-- removes up to four such, so the list does not grow for ever. What is found there under a negative
-- score is none of the operations.
-- When memory is full, Redis refuses a script by its first write, and only if that may add
-- something. So a script that first removes an operation runs, a running attempt can end, and no
-- operation is in doubt because Redis is full. For the same reason one that adds an operation does
-- that before it removes those that have ended.
local function unlist()
  local name = string.match(KEYS[1], '{(.*)}')
  redis.call('ZREM', KEYS[2], name, '~' .. name)
end
-- list_until lists an operation whose record stays for at least `ms` milliseconds from `now`, as
-- keep_for of lib/retain makes it.
local function list_until(lease_end, now, ms)
  local name = string.match(KEYS[1], '{(.*)}')
  local record_end = integer(now + math.max(redis.call('PTTL', KEYS[1]), tonumber(ms)))
  redis.call('ZADD', KEYS[2], lease_end, name, '-' .. record_end, '~' .. name)
  local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '-' .. integer(now), '(0', 'LIMIT', 0, 4)
  for i = 1, #ended do
    redis.call('ZREM', KEYS[2], ended[i], string.sub(ended[i], 2))
  end
end
