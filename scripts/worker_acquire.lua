-- worker_acquire: leases a worker id of a pool for a window of id timestamps, which begins where
-- the last window of that id ended. A repeat with the same nonce gets the same grant until its
-- window has ended; a later repeat is a new lease, with its own fence and start. The last id of
-- this identity comes first, if its window has ended; then one that was never used; then the one
-- that has been free longest.
-- Uses   format clock integer word incarnation fence pool examine slot slot_names
-- KEYS   [1] the pool (hash, see lib/pool)  [2] index of slots by the moment from which they may be
--        granted (sorted set)  [3] slots by nonce and identity (hash)
-- ARGV   [1] nonce, the secret that names this lease  [2] identity, may be ''  [3] skew: how far
--        the clocks of two servers may differ
--        [4] an unknown pool counts as: trust: new | wait: perhaps lost  [5] cool-down of a slot
--        after its window
--        [6] layout, [7] epoch, [8] datacenter and [9] ttl asked for, each '' for the pool's
--        [10] layout, [11] epoch, [12] datacenter, [13] width of a worker id and [14] ttl, for a
--        pool that is new
--        [15] the longest ttl that the caller's settings allow; 0: not set
--        [16] facts, see lib/incarnation
-- Reply  {'granted', worker id, not before, not after, fence, now, the pool's head as lib/pool
--        writes it, '1' first grant of the pool | '0'} | {'layout', layout, epoch, datacenter, ttl,
--        '1' the pool is new | '0'} the pool's values, or those of a new one, differ from the
--        request | {'longest', ttl} the pool's ttl, or the longest that others allow, exceeds
--        [15] | {'ended', layout, epoch} no id can have the present time | {'exhausted', wait} |
--        {'quarantined', wait, why, '1' the pool is new or lost | '0'} state may have been lost;
--        why: see lib/incarnation | a refusal, see lib/incarnation
-- Units  skew, cool-down, ttl and wait in milliseconds; times and epoch in milliseconds since 1970
--        of this server; width in bits
-- Effect writes on granted and on quarantined; a repeat writes the same again, so that its
--        acknowledgement has something to wait for
local key, index, names, nonce, identity = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local cooldown, longest = tonumber(ARGV[5]), tonumber(ARGV[15])
local pool, refusal = examine(key, read_head(key), index, names, tonumber(ARGV[14]), longest, tonumber(ARGV[3]), ARGV[4] == 'trust', read_facts(ARGV[16]))
if refusal then
  return refusal
end
local first = pool.layout == ''
local shape = first and {layout = ARGV[10], epoch = ARGV[11], datacenter = ARGV[12], bits = ARGV[13], ttl = tonumber(ARGV[14])} or pool

local function differs()
  return (ARGV[6] ~= '' and ARGV[6] ~= shape.layout) or (ARGV[7] ~= '' and ARGV[7] ~= shape.epoch) or (ARGV[8] ~= '' and ARGV[8] ~= shape.datacenter)
    or (ARGV[9] ~= '' and tonumber(ARGV[9]) ~= shape.ttl)
end

local function granted(id, slot, head)
  return {'granted', id, slot.from, slot.till, slot.fence, integer(now), head, first and '1' or '0'}
end

local function ended(slot)
  return slot.state == 'r' or tonumber(slot.till) <= now
end

local function rebuild_index()
  redis.call('DEL', index)
  for id = 0, 2 ^ shape.bits - 1 do
    local slot = read_slot(key, integer(id))
    if slot then
      redis.call('ZADD', index, slot.state == 'h' and slot.till or integer(math.min(tonumber(slot.till), now)), integer(id))
    end
  end
end

-- next_slot returns the id to grant and its record, if it has one; or neither, and how long to wait
-- for one. `before` is the last id of this identity by the index of names.
local function next_slot(before)
  local slot = before and read_slot(key, before)
  if slot and slot.identity == identity and ended(slot) then
    return before, slot
  end
  local counted = pool.next
  while pool.next < 2 ^ shape.bits do
    pool.next = pool.next + 1
    if redis.call('HEXISTS', key, 's:' .. integer(pool.next - 1)) == 0 then
      return integer(pool.next - 1)
    end
  end
  if redis.call('ZCARD', index) ~= pool.records then
    rebuild_index()
  end
  if pool.next ~= counted then
    write_pool(key, pool)
  end
  local longest_free = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  local free_at, slot = tonumber(longest_free[2]) + cooldown, read_slot(key, longest_free[1])
  if free_at > now and not (cooldown == 0 and slot and slot.state == 'r') then
    return nil, nil, integer(free_at - now)
  end
  return longest_free[1], slot
end

if differs() then
  return {'layout', shape.layout, shape.epoch, shape.datacenter, integer(shape.ttl), first and '1' or '0'}
end
if longest > 0 and math.max(pool.longest, shape.ttl) > longest then
  return {'longest', integer(math.max(pool.longest, shape.ttl))}
end
if ends_of(shape) <= now then
  return {'ended', shape.layout, shape.epoch}
end
if pool.quarantine > now then
  return {'quarantined', integer(pool.quarantine - now), why_of(pool.incarnation), first and '1' or '0'}
end

local known = redis.call('HMGET', names, 'n:' .. nonce, 'i:' .. identity)
local repeated = known[1] and read_slot(key, known[1])
if repeated and repeated.nonce == nonce and not ended(repeated) and not first then
  write_record(key, known[1], repeated)
  return granted(known[1], repeated, head_of(pool))
end

local id, last, wait = next_slot(known[2])
if not id then
  return {'exhausted', wait}
end
if first then
  pool.layout, pool.epoch, pool.datacenter, pool.bits, pool.ttl = shape.layout, shape.epoch, shape.datacenter, shape.bits, shape.ttl
end
local from = last and math.max(now, tonumber(last.till)) or now
pool.fence = integer(next_fence(pool.fence))
if not last then
  pool.records = pool.records + 1
end
-- A window that begins later does not end later: after a loss the wait is for the longest ttl +
-- skew, and no longer.
local head, slot = head_of(pool), {nonce = nonce, from = integer(from), till = integer(math.max(from, now + pool.ttl)), fence = pool.fence, state = 'h', identity = identity}
write_slot(key, index, id, slot, head)
name_slot(names, id, nonce, identity, last and last.nonce, last and last.identity)
return granted(id, slot, head)
