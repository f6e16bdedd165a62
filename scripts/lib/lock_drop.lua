-- lock_drop: takes a token out of the queue of a lock.
local function drop(queue, waiters, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', waiters, token)
end
