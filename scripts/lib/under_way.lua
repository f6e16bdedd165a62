-- under_way: the list of operations whose attempt has begun and has no answer, by the end of its
-- lease, in KEYS[2]. The name of an operation is what the braces of KEYS[1] hold. An operation past
-- its end is in doubt.
local operation = string.match(KEYS[1], '{(.*)}')
local function list_until(lease_end)
  redis.call('ZADD', KEYS[2], lease_end, operation)
end
local function unlist()
  redis.call('ZREM', KEYS[2], operation)
end
