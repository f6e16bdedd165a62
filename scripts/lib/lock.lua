-- lock: reads the holders of a lock. The lock is a string as redislock writes it, and expires with
-- the lease: the token (22 characters) and owner of an exclusive holder or, for joint holders, a
-- sentinel that is no token, followed by the number of permits. A hash has the joint holders by
-- token: 'fence since until permits owner'. The fences are a string about the last grant: 'fence
-- token since inbox', with '-' for the inbox once the holder knows of the grant. Every time is in
-- milliseconds since 1970 of this server.
local marks = {s = '=shared' .. string.rep('=', 15), p = '=permits' .. string.rep('=', 14)}

local function read_fence(grant)
  local fence, token, since, inbox = string.match(grant or '', '^(%d+) (%S+) (%d+) (%S+)$')
  return {number = fence, token = token, since = since or '0', inbox = inbox}
end

-- read_whole reads the rest of a joint holder, which most calls need of one holder at most.
local function read_whole(holder)
  if holder.text then
    holder.fence, holder.since, holder.owner = string.match(holder.text, '^(%d+) (%d+) %d+ %d+ (.*)$')
    holder.text = nil
  end
  return holder
end

-- read_lock returns the state of a lock that has this value, and this text about its last grant:
-- kind is its mode, or '' for a free lock. Of joint holders only those with an
-- open lease count.
local function read_lock(value, grant, holders)
  local state = {value = value, kind = '', last = read_fence(grant), together = {}, ended = {}, count = 0, used = 0, capacity = 0}
  local mark = value and string.sub(value, 1, 22)
  if not value then
    return state
  elseif mark ~= marks.s and mark ~= marks.p then
    state.kind = 'x'
    return state
  end
  local found = redis.call('HGETALL', holders)
  for i = 1, #found, 2 do
    local till, permits = string.match(found[i + 1], '^%d+ %d+ (%d+) (%d+)')
    local holder = {till = tonumber(till), permits = tonumber(permits), text = found[i + 1]}
    if holder.till > now then
      state.together[found[i]] = holder
      state.count, state.used = state.count + 1, state.used + holder.permits
      state.kind = mark == marks.s and 's' or 'p'
    else
      state.ended[#state.ended + 1] = found[i]
    end
  end
  state.capacity = tonumber(string.sub(value, 23)) or 0
  return state
end
