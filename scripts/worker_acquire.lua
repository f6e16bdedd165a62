-- worker_acquire: leases the next worker id of a pool for a window of time. The same nonce asked again answers the same grant.
-- A slot that was never used comes first (cursor + 1); once around the ring, the slot that has been free longest.
-- Uses   clock integer fence incarnation slot
-- KEYS   [1] the pool (hash: layout, epoch, bits, ttl, count, cursor, fence, incarnation; 's:<id>' one record a slot; 'n:<nonce>' the slot of a nonce)
--        [2] index of slots by the end of their window (sorted set; says nothing that the pool does not)
-- ARGV   [1] nonce, the secret that names this lease  [2] ttl  [3] identity, may be ''  [4] layout asked for, '' for the pool's  [5] epoch asked for, '' for the pool's
--        [6] layout, [7] epoch and [8] width of a worker id, for a pool that is new
-- Reply  {'granted', worker id, not before, not after, fence, ttl, now, layout, epoch} | {'layout', the pool's layout, the pool's epoch} | {'exhausted', wait}
-- Units  ttl and wait in milliseconds; times and epoch in milliseconds since 1970 of this server; width in bits
-- Effect writes on granted; a repeat writes what is there again, so that its acknowledgement has something to wait for
local pool, index, nonce, ttl = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local head = redis.call('HMGET', pool, 'layout', 'epoch', 'bits', 'count', 'fence')
local layout, epoch, bits = head[1] or ARGV[6], head[2] or ARGV[7], tonumber(head[3] or ARGV[8])
local count = tonumber(head[4] or 0)

local function granted(id, slot)
  return {'granted', id, slot.from, slot.till, slot.fence, slot.ttl, integer(now), layout, epoch}
end

local function rebuild_index()
  redis.call('DEL', index)
  for id = 0, count - 1 do
    local slot = read_slot(pool, integer(id))
    if slot then
      redis.call('ZADD', index, slot.till, integer(id))
    end
  end
end

if (ARGV[4] ~= '' and ARGV[4] ~= layout) or (ARGV[5] ~= '' and ARGV[5] ~= epoch) then
  return {'layout', layout, epoch}
end

local known = redis.call('HGET', pool, 'n:' .. nonce)
if known then
  redis.call('HSET', pool, 'n:' .. nonce, known)
  return granted(known, read_slot(pool, known))
end

local id, start = count, now
if count == 2 ^ bits then
  if redis.call('ZCARD', index) ~= count then
    rebuild_index()
  end
  local longest_free = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
  local free_at = tonumber(longest_free[2])
  if free_at > now then
    return {'exhausted', integer(free_at - now)}
  end
  id, start = tonumber(longest_free[1]), math.max(now, free_at)
end
id = integer(id)

local last = read_slot(pool, id)
local fence = integer(next_fence(head[5]))
local slot = {nonce = nonce, from = integer(start), till = integer(start + ttl), fence = fence, state = 'h', ttl = integer(ttl), identity = ARGV[3]}
write_slot(pool, index, id, slot)
if last then
  redis.call('HDEL', pool, 'n:' .. last.nonce)
else
  count = count + 1
end
redis.call('HSET', pool, 'layout', layout, 'epoch', epoch, 'bits', integer(bits), 'ttl', integer(ttl), 'count', integer(count),
  'cursor', id, 'fence', fence, 'incarnation', incarnation(), 'n:' .. nonce, id)
return granted(id, slot)
