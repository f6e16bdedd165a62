-- lock_grant: grants a lock (lib/lock) in the order of arrival. read_terms reads the settings that
-- all calls of a process share, 'patience window counts hold-off': how long a waiter that does not
-- poll keeps its place; how long it may take to claim a lock that was handed over to it; whether
-- PUBLISH counts every listener, 1 or 0 (a cluster's does not); how long nothing is granted after a
-- loss, 0 = no hold-off.
local function read_terms(text)
  local patience, window, counts, span = string.match(text, '^(%d+) (%d+) ([01]) (%d+)$')
  return tonumber(patience), tonumber(window), counts == '1', tonumber(span)
end

-- keep_ms returns a TTL: the embedded store has none below 100 ms.
local function keep_ms(ms)
  return integer(math.max(ms, 100))
end

-- remember returns how long a fence is remembered: a minute longer than its lease, and longer by as
-- much as it is ahead of this server's time, at most a year. After that, time alone makes the next
-- fence larger.
local function remember(ttl, number)
  local ahead = math.ceil((tonumber(number) - now_us) / 1000)
  return integer(ttl + 60000 + math.min(math.max(ahead, 0), 31536000000))
end

local function write_fence(fences, number, token, since, inbox, ttl)
  redis.call('SET', fences, table.concat({number, token, since, inbox}, ' '), 'PX', ttl)
end

-- upcoming returns the fence of the next grant.
local function upcoming(state)
  state.upcoming = state.upcoming or integer(next_fence(state.last.number))
  return state.upcoming
end

-- last_end returns the end of the last of the joint leases; 0 if there is none. It is kept in
-- `latest`: one call may let in hundreds.
local function last_end(state)
  if not state.latest then
    state.latest = 0
    for _, holder in pairs(state.together) do
      state.latest = math.max(state.latest, holder.till)
    end
  end
  return state.latest
end

-- mint records the next fence for a token whose lease lasts ttl milliseconds. It is remembered for
-- longer where a joint lease lasts longer.
local function mint(fences, state, token, inbox, ttl)
  state.last = {number = upcoming(state), token = token, since = now_text, inbox = inbox}
  state.upcoming = nil
  write_fence(fences, state.last.number, token, state.last.since, inbox, remember(math.max(ttl, last_end(state) - now), state.last.number))
end

-- most_holders is the number of joint holders that a lock has at most: a call reads all of them.
local most_holders = 256

-- room reports whether the lock can be granted as wanted beside its present holders.
local function room(state, want)
  if state.kind == '' then
    return true
  end
  return state.kind == want.mode and state.count < most_holders and (want.mode == 's' or (want.mode == 'p' and want.capacity == state.capacity and state.used + want.permits <= want.capacity))
end

-- write_together writes one of the joint holders, and keeps the lock until the last of their leases
-- ends.
local function write_together(lock, holders, state, token, holder)
  read_whole(holder)
  state.together[token] = holder
  state.latest = math.max(last_end(state), holder.till)
  local left = keep_ms(state.latest - now)
  for _, ended in ipairs(state.ended) do
    redis.call('HDEL', holders, ended)
  end
  state.ended = {} -- they may be granted the lock anew, and others after them
  redis.call('HSET', holders, token, table.concat({holder.fence, holder.since, integer(holder.till), integer(holder.permits), holder.owner}, ' '))
  redis.call('SET', lock, marks[state.kind] .. integer(state.capacity), 'PX', left)
  redis.call('PEXPIRE', holders, left)
end

-- renew_together moves the end of one of the joint leases to ttl milliseconds from now, and
-- remembers the last fence for as long as after a grant.
local function renew_together(lock, fences, holders, state, token, ttl)
  local holder = state.together[token]
  holder.till, state.latest = now + ttl, nil
  write_together(lock, holders, state, token, holder)
  if state.last.number then
    keep_for(fences, remember(last_end(state) - now, state.last.number))
  end
end

-- admit grants the lock to a token for ms milliseconds. inbox is '-' if the owner learns of it from
-- the reply. It may delete the holders: the script has checked by then that they are a hash.
local function admit(lock, fences, holders, state, token, want, ms, inbox)
  mint(fences, state, token, inbox, want.ttl)
  if state.kind == '' then
    redis.call('DEL', holders)
    state.count, state.used = 0, 0
  end
  state.kind = want.mode
  if want.mode == 'x' then
    redis.call('SET', lock, token .. want.owner, 'PX', keep_ms(ms))
    return
  end
  state.count, state.used, state.capacity = state.count + 1, state.used + want.permits, want.capacity
  write_together(lock, holders, state, token, {fence = state.last.number, since = state.last.since, till = now + ms, permits = want.permits, owner = want.owner})
end

-- set_aside takes a waiter out of the order and keeps its place, until the waiter would lose it.
local function set_aside(queue, token, want)
  redis.call('ZADD', queue, '-' .. want.till_text, token)
end

-- reaches notifies a process, and reports whether it listens; true if Redis cannot count listeners
-- (`counts` is false) or does not let scripts PUBLISH. Its waiters then poll.
local function reaches(channel, message, counts)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) ~= 'number' or heard > 0 or not counts
end

-- invitation returns the message that hands the lock to a waiter: 'token fence since look ms'; ms
-- is for how long it has the lock.
local function invitation(token, want, state, ms)
  return table.concat({token, upcoming(state), now_text, want.look, integer(ms)}, ' ')
end

-- most is the number of waiters that one call sets aside or serves. The next call goes on with the
-- others.
local most = 10000

-- hand_over gives the lock to the first waiters of the queue, as far as there is room, each for the
-- claim window, within which it has to ask for its grant. It sets aside waiters whose process does
-- not listen, those of a process that has missed a window since they polled, and those that have
-- not polled for seven windows, at least seven seconds. One message shows this for all waiters of a
-- process. me is the token of the caller, which needs no message. own is the caller's inbox:
-- waiters of that process get their whole grant at once, and are returned with their fences, but
-- for those that keep their places, which may have no request under way. The second result reports
-- whether a waiter may remain whose turn comes before any newcomer's. first is the first of the
-- queue, if the caller knows it.
local function hand_over(lock, fences, queue, waiters, holders, state, me, own, window, counts, patience, first)
  local told, gone, lapsed = {}, {}, state.kind == '' and state.last.inbox
  local since, silence = tonumber(state.last.since), math.max(7 * window, 7000)
  for _ = 1, most do
    if state.kind == 'x' then
      break
    end
    local token = first or first_in_line(queue)
    first = nil
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
      if token == me or reaches(want.inbox, '', counts) then
        return told, true
      end
      gone[want.inbox] = true
    elseif token == me then
      admit(lock, fences, holders, state, token, want, want.ttl, '-')
      state.mine = state.last -- others may be admitted after it
      drop(queue, waiters, token)
    elseif want.inbox == own and not want.keeps then
      admit(lock, fences, holders, state, token, want, want.ttl, '-')
      drop(queue, waiters, token)
      told[#told + 1] = {token, state.last.number}
    elseif reaches(want.inbox, invitation(token, want, state, math.min(window, want.ttl)), counts) then
      -- one that has no request under way misses its window, which says nothing of its process
      local heard = want.keeps and counts and want.inbox .. '~' or want.inbox
      admit(lock, fences, holders, state, token, want, math.min(window, want.ttl), heard)
      set_aside(queue, token, want) -- should it not ask within its window
    elseif want.inbox == own then
      set_aside(queue, token, want) -- its process, the caller's, has no subscription just now
    else
      gone[want.inbox] = true
    end
  end
  return told, true
end

-- withdraw takes the lock from one of its joint holders.
local function withdraw(lock, holders, state, token)
  redis.call('HDEL', holders, token)
  state.count, state.used = state.count - 1, state.used - state.together[token].permits
  state.together[token], state.latest = nil, nil
  local latest = last_end(state)
  if latest == 0 then
    redis.call('DEL', lock, holders)
    state.kind = ''
  else
    redis.call('PEXPIRE', lock, keep_ms(latest - now))
  end
end
