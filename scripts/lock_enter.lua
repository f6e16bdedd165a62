-- lock_enter: asks for a lock. It is granted if there is room and no waiter; else the token joins
-- the queue, or is refused. A repeat with the same token gets the same grant, claims one that was
-- handed over meanwhile, or keeps the place in the queue. A free exclusive lock is taken here, as
-- redislock takes it. Else redislock's own script runs first, in the same call: a lock obtained
-- there gets its fence here, or goes to the token that has waited longer.
-- Uses   format clock lock_line lock_drop integer fence word incarnation lock retain lock_grant
--        lock_doubt
-- KEYS   [1] the lock (string, see lib/lock)  [2] its fences (string)  [3] its queue (sorted set,
--        tokens by arrival)  [4] the waiters' records (hash)
--        [5] those who hold it together (hash)  [6] the marker of lost state (string, see
--        lib/lock_doubt); only if a hold-off is among the terms
-- ARGV   [1] token, 22 characters  [2] owner, may be ''  [3] mode: x exclusive | s shared | p
--        permits  [4] ttl  [5] ttl and a minute: how long the fence is remembered
--        [6] inbox: the channel on which the waiter's process listens, with ~ after it if the
--        waiter keeps its place without a request; '' = do not wait
--        [7] permits wanted  [8] permits in all, 0 unless mode is p
--        [9] terms, see lib/lock_grant  [10] the number of this poll of the waiter, which the
--        message that hands the lock over repeats
--        [11] facts, see lib/incarnation  [12] only after redislock's script: its reply, true if
--        it has obtained the lock
-- Reply  {'granted', fence, since, now} the lease ends one ttl from now | {'waiting', number of
--        waiters before, left, waited} waited: since its arrival | {'held', since, left, owner,
--        number of joint holders} | {'capacity', permits in all} in use with another number |
--        {'doubt', wait} state may have been lost | a refusal, see lib/incarnation
-- Units  spans in milliseconds; times in milliseconds since 1970 of this server; left is until a
--        lease ends by itself, -1 = never; since is 0 if it is not known
-- Effect writes on granted and waiting, and where it notices that leases were handed over, have
--        ended or may be lost
local lock, fences, queue, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local last_grant = redis.call('GET', fences)
local previous = last_grant and tonumber(string.match(last_grant, '^%d*')) or last_grant == false and 0
-- The lock is free, and nobody waits. Else this server's time is behind, the token has asked
-- before, or there is a record of a newer format.
if ARGV[3] == 'x' and not KEYS[6] and previous and previous < now_us and not (last_grant and string.find(last_grant, token, 1, true))
  and redis.call('ZCARD', queue) == 0 and redis.call('SET', lock, token .. ARGV[2], 'NX', 'PX', ARGV[4]) then
  redis.call('SET', fences, now_us_text .. ' ' .. token .. ' ' .. now_text .. ' -', 'PX', ARGV[5])
  return {'granted', now_us_text, now_text, now_text}
end
local waiters, holders, inbox = KEYS[4], KEYS[5], ARGV[6]
refuse_newer('lock', last_grant) -- it says so for all keys of the lock
local loss_marker = KEYS[6] and redis.call('GET', KEYS[6])
refuse_newer('marker', loss_marker)
-- Another package's script runs before this line.
local waited_for = (ARGV[12] or KEYS[6]) and first_in_line(queue) -- before a marker is written: it may be no queue
local value = redis.call('GET', lock)
local place = read_waiter(waiters, token)
local arrival = place and place.arrival
local patience_text = string.match(ARGV[9], '^%d+')

-- wait_in_line queues the token by its arrival, also if it was set aside meanwhile. Each poll drops
-- waiters that were set aside and have lost their places.
local function wait_in_line()
  if place then
    for _, ended in ipairs(redis.call('ZRANGEBYSCORE', queue, '-' .. now_text, '(0', 'LIMIT', '0', '100')) do
      drop(queue, waiters, ended)
    end
  else
    local newest = tonumber(redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]) or 0
    arrival = newest < now_us and now_us_text or integer(newest + 1)
  end
  redis.call('HSET', waiters, token, table.concat({ARGV[3], ARGV[7], ARGV[8], ARGV[4], integer(now + patience_text), inbox, ARGV[10], arrival, ARGV[2]}, ' '))
  redis.call('ZADD', queue, arrival, token)
  redis.call('PEXPIRE', waiters, patience_text)
  redis.call('PEXPIRE', queue, patience_text)
end

local function waiting(left)
  local before = redis.call('ZCOUNT', queue, '0', '(' .. arrival)
  return {'waiting', integer(before), integer(left), integer(math.max(0, now - tonumber(arrival) / 1000))}
end

-- Where another holds the lock exclusively, there is nothing to decide.
if value and string.sub(value, 1, 1) ~= '=' and string.sub(value, 1, 22) ~= token and inbox ~= '' and not KEYS[6] then
  wait_in_line()
  return waiting(redis.call('PTTL', lock))
end
local patience, window, counts, span = read_terms(ARGV[9])
local facts = read_facts(ARGV[11])
local want = {mode = ARGV[3], permits = tonumber(ARGV[7]), capacity = tonumber(ARGV[8]), ttl = tonumber(ARGV[4]), owner = ARGV[2]}

local function granted(state)
  return {'granted', state.last.number, state.last.since, now_text}
end

-- take answers for a lock without waiters. If it returns nothing, the caller has to queue.
local function take()
  if not value or string.sub(value, 1, 22) ~= token then
    return nil
  end
  local state = {last = read_fence(last_grant), together = {}}
  if state.last.token == token then
    if state.last.inbox ~= '-' then
      drop(queue, waiters, token)
    end
    write_fence(fences, state.last.number, token, state.last.since, '-', remember(want.ttl, state.last.number))
  elseif waited_for or first_in_line(queue) or in_doubt(KEYS[6], loss_marker, span, facts) > 0 then
    redis.call('DEL', lock)
    value = false
    return nil
  else
    drop(queue, waiters, token) -- it may have been set aside
    mint(fences, state, token, '-', want.ttl)
  end
  redis.call('PEXPIRE', lock, ARGV[4])
  return granted(state)
end

local quick = want.mode == 'x' and take()
if quick then
  return quick
end

local state = read_lock(value, last_grant, holders)
local mine = state.together[token]
if mine then
  drop(queue, waiters, token)
  renew_together(lock, fences, holders, state, token, want.ttl)
  if state.last.token == token and state.last.inbox ~= '-' then
    write_fence(fences, mine.fence, token, mine.since, '-', remember(last_end(state) - now, mine.fence))
  end
  return {'granted', mine.fence, mine.since, now_text}
end
local records = redis.call('HLEN', waiters) + redis.call('HLEN', holders)
local wait, refusal = in_doubt(KEYS[6], loss_marker, span, facts)
if refusal then
  return refusal
end
if wait > 0 then
  return {'doubt', integer(wait)}
end

local function left()
  if state.kind == 'x' then
    return redis.call('PTTL', lock)
  end
  local soonest = state.kind == '' and now or math.huge -- where it is free, more waiters are to be set aside
  for _, holder in pairs(state.together) do
    soonest = math.min(soonest, holder.till)
  end
  return soonest - now
end

local blocked = false
if place or records > 0 or state.kind == '' then
  if place and inbox ~= '' then
    wait_in_line()
  end
  local _, others = hand_over(lock, fences, queue, waiters, holders, state, token, '', window, counts, patience, not place and waited_for)
  blocked = others
end
if state.mine then
  state.last = state.mine
  return granted(state)
end
if want.mode == 'p' and state.kind == 'p' and state.capacity ~= want.capacity and not place then
  return {'capacity', integer(state.capacity)}
end
if not blocked and room(state, want) then
  admit(lock, fences, holders, state, token, want, want.ttl, '-')
  drop(queue, waiters, token)
  return granted(state)
end
if inbox == '' then
  local since = '0'
  if state.kind == 'x' and state.last.token == string.sub(redis.call('GET', lock), 1, 22) then
    since = state.last.since
  end
  local owner = state.kind == 'x' and string.sub(redis.call('GET', lock), 23) or ''
  for _, holder in pairs(state.together) do
    since, owner = read_whole(holder).since, holder.owner
    break -- of several, any
  end
  return {'held', since, integer(left()), owner, integer(state.count)}
end
if not place then
  wait_in_line()
end
return waiting(left())
