-- lock_grant: gives a lock (lib/lock) to whoever may have it, in the order of arrival. read_terms
-- reads what all calls of a user of locks have in common, 'patience window counts hold-off': how
-- long a waiter that does not ask again keeps its place; how long it may take to claim a lock that
-- was handed over to it; whether PUBLISH counts every listener, 1 or 0 (a cluster's does not); how
-- long nothing is granted after a loss, 0 = never mind.
local function read_terms(text)
  local patience, window, counts, span = string.match(text, '^(%d+) (%d+) ([01]) (%d+)$')
  return tonumber(patience), tonumber(window), counts == '1', tonumber(span)
end

-- keep_ms is a time to live: the embedded store keeps nothing for less than 100 ms.
local function keep_ms(ms)
  return integer(math.max(ms, 100))
end

-- remember is how long a fence is remembered: a minute longer than its lease, and as much longer as
-- it is ahead of this server's time, a year at most. After that time alone makes the next one
-- larger.
local function remember(ttl, number)
  local ahead = math.ceil((tonumber(number) + run_length - now_us) / 1000)
  return integer(ttl + 60000 + math.min(math.max(ahead, 0), 31536000000))
end

local function write_fence(fences, number, token, since, inbox, life)
  redis.call('SET', fences, table.concat({number, token, since, inbox}, ' '), 'PX', life)
end

-- in_run reports whether a fence is that of a grant or one of those behind it. '0', of a client
-- that has none, has no run.
local function in_run(first, fence)
  local behind = tonumber(fence) - tonumber(first)
  return behind == 0 or (first ~= '0' and behind > 0 and behind <= run_length)
end

-- upcoming is the fence that is minted next, behind the run of the last one (lib/lock_run). Those
-- who hold a lock together hand nothing on: between them nothing is left out.
local function upcoming(state)
  local together = state.kind == 's' or state.kind == 'p'
  return integer(next_fence(tonumber(state.last.number or 0) + (together and 0 or run_length)))
end

-- mint writes the next fence down for a token whose lease lasts that long.
local function mint(fences, state, token, inbox, ttl)
  state.last = {number = upcoming(state), token = token, since = integer(now), inbox = inbox}
  write_fence(fences, state.last.number, token, state.last.since, inbox, remember(ttl, state.last.number))
end

-- room reports whether the lock can be held in that way beside those who hold it.
local function room(state, want)
  if state.kind == '' then
    return true
  end
  return state.kind == want.mode and (want.mode == 's' or (want.mode == 'p' and want.capacity == state.capacity and state.used + want.permits <= want.capacity))
end

-- last_end is when the last of the leases ends that are held together; 0 if there is none.
local function last_end(state)
  local latest = 0
  for _, holder in pairs(state.together) do
    latest = math.max(latest, holder.till)
  end
  return latest
end

-- write_together writes one of those who hold the lock together, and keeps the lock until the last
-- of their leases ends.
local function write_together(lock, holders, state, token, holder)
  state.together[token] = holder
  local left = keep_ms(last_end(state) - now)
  for _, ended in ipairs(state.ended) do
    redis.call('HDEL', holders, ended)
  end
  redis.call('HSET', holders, token, table.concat({holder.fence, holder.since, integer(holder.till), integer(holder.permits), holder.owner}, ' '))
  redis.call('SET', lock, marks[state.kind] .. integer(state.capacity), 'PX', left)
  redis.call('PEXPIRE', holders, left)
end

-- admit gives the lock to a token for that many milliseconds. inbox is '-' if its owner hears of it
-- from the reply. It may delete the holders: the script has seen by then that they are a hash.
local function admit(lock, fences, holders, state, token, want, ms, inbox)
  mint(fences, state, token, inbox, want.ttl)
  if state.kind == '' then
    redis.call('DEL', holders)
    state.used = 0
  end
  state.kind = want.mode
  if want.mode == 'x' then
    redis.call('SET', lock, token .. want.owner, 'PX', keep_ms(ms))
    return
  end
  state.used, state.capacity = state.used + want.permits, want.capacity
  write_together(lock, holders, state, token, {fence = state.last.number, since = state.last.since, till = now + ms, permits = want.permits, owner = want.owner})
end

local function drop(queue, waiters, token)
  redis.call('ZREM', queue, token)
  redis.call('HDEL', waiters, token)
end

-- set_aside takes a waiter out of the line and keeps its place, until it would lose that.
local function set_aside(queue, token, want)
  redis.call('ZADD', queue, '-' .. integer(want.till), token)
end

-- reaches tells a process, and whether it listens, where Redis can tell (`counts`).
local function reaches(channel, message, counts)
  return redis.call('PUBLISH', channel, message) > 0 or not counts
end

-- invitation tells a waiter that the lock is about to be his: 'token fence since look'.
local function invitation(token, want, state)
  return table.concat({token, upcoming(state), integer(now), want.look}, ' ')
end

-- most is how many waiters one call sets aside or serves. Where there are more the next call goes
-- on.
local most = 10000

-- hand_over gives the lock to those at the head of the line, as far as there is room, each for the
-- claim window, within which it has to ask for its grant. Set aside are waiters whose process does
-- not listen, those of a process that has let a window pass since they looked, and those that have
-- not looked for seven windows, and seven seconds at least. One of them asked is enough for all of
-- a process. me is the token of the caller, who needs no message; own is the caller's inbox:
-- waiters of that process have their whole grant at once, and are returned with their fences. The
-- second result reports whether a waiter is left whose turn it is before any newcomer's.
local function hand_over(lock, fences, queue, waiters, holders, state, me, own, window, counts, patience)
  local told, gone, lapsed = {}, {}, state.kind == '' and state.last.inbox
  local since, silence = tonumber(state.last.since), math.max(7 * window, 7000)
  for _ = 1, most do
    local token = first_in_line(queue)
    if not token then
      return told, false
    end
    local want = read_waiter(waiters, token)
    local looked = want and want.till - patience
    if not want or (token ~= me and want.till <= now) then
      drop(queue, waiters, token)
    elseif token ~= me and (gone[want.inbox] or looked + silence <= now or (want.inbox == lapsed and looked <= since)) then
      set_aside(queue, token, want)
    elseif not room(state, want) then
      if token == me or state.kind == 'x' or reaches(want.inbox, '', counts) then
        return told, true
      end
      gone[want.inbox] = true
    elseif token == me then
      admit(lock, fences, holders, state, token, want, want.ttl, '-')
      state.mine = state.last -- others may be admitted after it
      drop(queue, waiters, token)
    elseif want.inbox == own then
      admit(lock, fences, holders, state, token, want, want.ttl, '-')
      drop(queue, waiters, token)
      told[#told + 1] = {token, state.last.number}
    elseif reaches(want.inbox, invitation(token, want, state), counts) then
      admit(lock, fences, holders, state, token, want, math.min(window, want.ttl), want.inbox)
      set_aside(queue, token, want) -- should it not ask within its window
    else
      gone[want.inbox] = true
    end
  end
  return told, true
end

-- withdraw takes the lock from a token that holds it with others.
local function withdraw(lock, holders, state, token)
  redis.call('HDEL', holders, token)
  state.used = state.used - state.together[token].permits
  state.together[token] = nil
  local latest = last_end(state)
  if latest == 0 then
    redis.call('DEL', lock, holders)
    state.kind = ''
  else
    redis.call('PEXPIRE', lock, keep_ms(latest - now))
  end
end
