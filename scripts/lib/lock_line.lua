-- lock_line: the queue of a lock, a sorted set of tokens by the microsecond of their arrival. A
-- token that was set aside, since its process did not answer, has a negative score: minus the
-- millisecond until which its place is kept. It is passed over until it polls again, and then has
-- its place back.
local function first_in_line(queue)
  return redis.call('ZCARD', queue) > 0 and redis.call('ZRANGEBYSCORE', queue, '0', '+inf', 'LIMIT', '0', '1')[1]
end
