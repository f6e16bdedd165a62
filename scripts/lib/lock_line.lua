-- lock_line: the queue of a lock, a sorted set of tokens by the microsecond of their arrival. A
-- token that was set aside, since its process did not answer, has a negative score: minus the
-- millisecond until which its place is kept. It is passed over until it polls again, and then has
-- its place back.
local function first_in_line(queue)
  return redis.call('ZCARD', queue) > 0 and redis.call('ZRANGEBYSCORE', queue, '0', '+inf', 'LIMIT', '0', '1')[1]
end

-- read_waiter returns a waiter's record, 'mode permits capacity ttl until inbox look arrival
-- owner': look is the number of its newest poll, arrival its score in the queue, until when it
-- loses its place. mode: x exclusive, s shared, p permits. A ~ after the inbox says that it keeps
-- its place (`keeps`): it may have no request under way, though its process listens.
local function read_waiter(waiters, token)
  local pattern = '^(%a) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (.*)$'
  local mode, permits, capacity, ttl, till, inbox, look, arrival, owner = string.match(redis.call('HGET', waiters, token) or '', pattern)
  if not mode then
    return nil
  end
  local keeps = string.sub(inbox, -1) == '~'
  if keeps then
    inbox = string.sub(inbox, 1, -2)
  end
  return {mode = mode, keeps = keeps, permits = tonumber(permits), capacity = tonumber(capacity), ttl = tonumber(ttl), till = tonumber(till), till_text = till, inbox = inbox, look = look, arrival = arrival, owner = owner}
end
