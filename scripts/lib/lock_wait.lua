-- lock_wait: the part of lock_enter that waits, and its fast path where another holds the lock
-- exclusively: then there is nothing to decide. In every other case the script goes on after it.
local patience_text = string.match(ARGV[9], '^%d+')
local value = redis.call('GET', KEYS[1])
local place = read_waiter(KEYS[4], ARGV[1])
local arrival = place and place.arrival

-- wait_in_line queues the token by its arrival, also if it was set aside meanwhile. Each poll drops
-- waiters that were set aside and have lost their places.
local function wait_in_line()
  local queue, waiters = KEYS[3], KEYS[4]
  if place then
    for _, ended in ipairs(redis.call('ZRANGEBYSCORE', queue, '-' .. now_text, '(0', 'LIMIT', '0', '100')) do
      drop(queue, waiters, ended)
    end
  else
    local last = tonumber(redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]) or 0
    arrival = last < now_us and now_us_text or integer(last + 1)
  end
  redis.call('HSET', waiters, ARGV[1], table.concat({ARGV[3], ARGV[7], ARGV[8], ARGV[4], integer(now + patience_text), ARGV[6], ARGV[10], arrival, ARGV[2]}, ' '))
  redis.call('ZADD', queue, arrival, ARGV[1])
  redis.call('PEXPIRE', waiters, patience_text)
  redis.call('PEXPIRE', queue, patience_text)
end

-- before returns the number of waiters before this one.
local function before()
  return integer(redis.call('ZCOUNT', KEYS[3], '0', '(' .. arrival))
end

-- waited returns for how long this one has waited.
local function waited()
  return integer(math.max(0, now - tonumber(arrival) / 1000))
end

local exclusive = value and string.sub(value, 1, 1) ~= '='
if exclusive and string.sub(value, 1, 22) ~= ARGV[1] and ARGV[6] ~= '' and not KEYS[6] then
  wait_in_line()
  return {'waiting', before(), integer(redis.call('PTTL', KEYS[1])), waited()}
end
