-- under_way: the list of operations whose attempt has begun and has no answer, by the end of its
-- lease, in KEYS[2]. The name of an operation is what the braces of KEYS[1] hold. An operation past
-- its end is in doubt. A script that takes an operation off first is let through when memory is
-- full: only the first write of a script is refused then, and only if it may add something. So an
-- attempt that runs can end, and is not in doubt because Redis is full.
local operation = string.match(KEYS[1], '{(.*)}')
local function list_until(lease_end)
  redis.call('ZADD', KEYS[2], lease_end, operation)
end
local function unlist()
  redis.call('ZREM', KEYS[2], operation)
end
