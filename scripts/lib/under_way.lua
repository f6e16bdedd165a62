-- under_way: the list of operations whose attempt has begun and has no answer, by the end of its
-- lease, in KEYS[2]. The name of an operation stands in the braces that end KEYS[1]. An operation
-- past its end is in doubt. It stands there a second time, after '~', by minus the time at which
-- its record ends: what has no record any more is of no use. So that the list does not grow for
-- ever, every tenth operation that is added, as the clock has it, takes up to 40 such off the list.
-- What is found there under a negative score is none of the operations.
-- When memory is full, Redis refuses a script by its first write, and only if that may add
-- something. So a script that first removes an operation runs, a running attempt can end, and no
-- operation is in doubt because Redis is full. For the same reason a script that adds an operation
-- does that before it removes those that have ended.
local function operation_of(key)
  return string.sub(key, string.find(key, '{', 1, true) + 1, -2)
end
local function unlist()
  local name = operation_of(KEYS[1])
  redis.call('ZREM', KEYS[2], name, '~' .. name)
end
-- list_until lists an operation whose record ends then.
local function list_until(lease_end, record_end)
  local name = operation_of(KEYS[1])
  redis.call('ZADD', KEYS[2], lease_end, name, '-' .. record_end, '~' .. name)
  if string.sub(now_us_text, -1) ~= '0' then
    return
  end
  local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '-' .. now_text, '(0', 'LIMIT', 0, 40)
  for i = 1, #ended do
    redis.call('ZREM', KEYS[2], ended[i], string.sub(ended[i], 2))
  end
end
