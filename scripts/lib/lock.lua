-- lock: who holds a lock. The lock is a string as redislock writes it, and expires with the lease:
-- token (22 characters) and owner of an exclusive holder; while several hold it together a mark
-- that is no holder's token, and after it how many permits there are. Those are in a hash by token:
-- 'fence since until permits owner'. The fences are a string about the last grant: 'fence token
-- since inbox', the inbox being '-' once the holder knows of it. A waiter's record is 'mode permits
-- capacity ttl until inbox look arrival owner', look being the number of its newest question,
-- arrival its score in the queue. mode: x exclusive, s shared, p permits. Every time is in
-- milliseconds since 1970 of this server.
local marks = {s = '=shared' .. string.rep('=', 15), p = '=permits' .. string.rep('=', 14)}

local function read_fence(fences)
  local fence, token, since, inbox = string.match(redis.call('GET', fences) or '', '^(%d+) (%S+) (%d+) (%S+)$')
  return {number = fence, token = token, since = since or '0', inbox = inbox}
end

local function read_holder(text)
  local fence, since, till, permits, owner = string.match(text, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return {fence = fence, since = since, till = tonumber(till), permits = tonumber(permits), owner = owner}
end

local function read_waiter(waiters, token)
  local pattern = '^(%a) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (.*)$'
  local mode, permits, capacity, ttl, till, inbox, look, arrival, owner = string.match(redis.call('HGET', waiters, token) or '', pattern)
  if not mode then
    return nil
  end
  return {mode = mode, permits = tonumber(permits), capacity = tonumber(capacity), ttl = tonumber(ttl), till = tonumber(till), inbox = inbox, look = look, arrival = arrival, owner = owner}
end

-- read_lock tells how a lock is held: kind is a mode, or '' if nobody holds it. Of those who hold
-- it together only the ones whose lease is open count.
local function read_lock(lock, fences, holders)
  local value = redis.call('GET', lock)
  local state = {value = value, kind = '', last = read_fence(fences), together = {}, ended = {}, used = 0, capacity = 0, soonest = math.huge}
  local mark = value and string.sub(value, 1, 22)
  if not value then
    return state
  elseif mark ~= marks.s and mark ~= marks.p then
    state.kind = 'x'
    return state
  end
  local found = redis.call('HGETALL', holders)
  for i = 1, #found, 2 do
    local holder = read_holder(found[i + 1])
    if holder.till > now then
      state.together[found[i]] = holder
      state.used = state.used + holder.permits
      state.soonest = math.min(state.soonest, holder.till)
      state.kind = mark == marks.s and 's' or 'p'
    else
      state.ended[#state.ended + 1] = found[i]
    end
  end
  state.capacity = tonumber(string.sub(value, 23)) or 0
  return state
end
