-- worker_acquire: leases a worker id of a pool for a window of id timestamps, which begins where the last window of that id ended. The same nonce asked again answers the same grant.
-- The id that this identity had last comes first, if its window has ended; then one that was never used; then the one that has been free longest.
-- Uses   clock integer fence incarnation pool examine slot
-- KEYS   [1] the pool (hash, see lib/pool)  [2] index of slots by the moment from which they may be granted (sorted set)  [3] slots by nonce and identity (hash)
-- ARGV   [1] nonce, the secret that names this lease  [2] identity, may be ''  [3] skew: how far the clocks of two servers may differ
--        [4] what an unknown pool is: trust: new | wait: perhaps lost  [5] cool-down of a slot behind its window
--        [6] layout, [7] epoch, [8] datacenter and [9] ttl asked for, each '' for the pool's
--        [10] layout, [11] epoch, [12] datacenter, [13] width of a worker id and [14] ttl, for a pool that is new
-- Reply  {'granted', worker id, not before, not after, fence, ttl, now, layout, epoch, datacenter, width, '1' first grant of the pool | '0'}
--        | {'layout', layout, epoch, datacenter, ttl} the pool's, which are others | {'exhausted', wait} | {'quarantined', wait} state may have been lost
-- Units  skew, cool-down, ttl and wait in milliseconds; times and epoch in milliseconds since 1970 of this server; width in bits
-- Effect writes on granted and on quarantined; a repeat writes what is there again, so that its acknowledgement has something to wait for
local key, index, names, nonce, identity, cooldown = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], tonumber(ARGV[5])
local pool = examine(key, tonumber(ARGV[14]), tonumber(ARGV[3]), ARGV[4] == 'trust')
local first = pool.layout == ''

local function differs()
  return (ARGV[6] ~= '' and ARGV[6] ~= pool.layout) or (ARGV[7] ~= '' and ARGV[7] ~= pool.epoch) or (ARGV[8] ~= '' and ARGV[8] ~= pool.datacenter)
    or (ARGV[9] ~= '' and tonumber(ARGV[9]) ~= pool.ttl)
end

local function granted(id, slot)
  return {'granted', id, slot.from, slot.till, slot.fence, integer(pool.ttl), integer(now), pool.layout, pool.epoch, pool.datacenter, pool.bits, first and '1' or '0'}
end

local function ended(slot)
  return slot.state == 'r' or tonumber(slot.till) <= now
end

local function rebuild_index()
  redis.call('DEL', index)
  for id = 0, 2 ^ pool.bits - 1 do
    local slot = read_slot(key, integer(id))
    if slot then
      redis.call('ZADD', index, slot.till, integer(id))
    end
  end
end

-- next_slot returns the id to grant, or nothing and how long to wait for one.
local function next_slot()
  local before = identity ~= '' and redis.call('HGET', names, 'i:' .. identity)
  local slot = before and read_slot(key, before)
  if slot and slot.identity == identity and ended(slot) then
    return before
  end
  while pool.next < 2 ^ pool.bits do
    pool.next = pool.next + 1
    if redis.call('HEXISTS', key, 's:' .. integer(pool.next - 1)) == 0 then
      return integer(pool.next - 1)
    end
  end
  if redis.call('ZCARD', index) ~= pool.records then
    rebuild_index()
  end
  local longest_free = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  local free_at = tonumber(longest_free[2]) + cooldown
  if free_at > now then
    return nil, integer(free_at - now)
  end
  return longest_free[1]
end

if not first and differs() then
  return {'layout', pool.layout, pool.epoch, pool.datacenter, integer(pool.ttl)}
end
if first and tonumber(ARGV[14]) > pool.ttl then
  pool.quarantine, pool.ttl = pool.quarantine + tonumber(ARGV[14]) - pool.ttl, tonumber(ARGV[14])
  write_pool(key, pool)
end
if pool.quarantine > now then
  return {'quarantined', integer(pool.quarantine - now)}
end

local known = redis.call('HGET', names, 'n:' .. nonce)
local repeated = known and read_slot(key, known)
if repeated and repeated.nonce == nonce then
  write_slot(key, index, known, repeated)
  return granted(known, repeated)
end

if first then
  pool.layout, pool.epoch, pool.datacenter, pool.bits, pool.ttl = ARGV[10], ARGV[11], ARGV[12], ARGV[13], tonumber(ARGV[14])
end
local id, wait = next_slot()
if not id then
  return {'exhausted', wait}
end
local last = read_slot(key, id)
local from = last and math.max(now, tonumber(last.till)) or now
pool.fence = integer(next_fence(pool.fence))
local slot = {nonce = nonce, from = integer(from), till = integer(from + pool.ttl), fence = pool.fence, state = 'h', identity = identity}
write_slot(key, index, id, slot)
name_slot(names, id, slot, last)
if not last then
  pool.records = pool.records + 1
end
write_pool(key, pool)
return granted(id, slot)
