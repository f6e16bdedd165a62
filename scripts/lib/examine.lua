-- examine: the noticing of lost state in a worker-id pool (lib/pool).
local function write_pool(key, pool)
  redis.call('HSET', key, 'layout', pool.layout, 'epoch', pool.epoch, 'datacenter', pool.datacenter, 'bits', pool.bits, 'ttl', integer(pool.ttl),
    'records', integer(pool.records), 'next', integer(pool.next), 'fence', pool.fence, 'incarnation', pool.incarnation, 'quarantine', integer(pool.quarantine))
end

-- examine reads a pool and notices that state may have been lost: another incarnation wrote it, a part of it is missing, or it is not there at all. Then it
-- writes down that nothing is to be granted for the longest time that a window can still be open: ttl + skew. An unknown pool is a new one if `trust`.
local function examine(key, ttl, skew, trust)
  local pool, complete, unknown = read_pool(key)
  local life = incarnation()
  if complete and pool.incarnation == life then
    return pool
  end
  if not complete then
    pool.next = 0
  end
  pool.ttl = math.max(pool.ttl, ttl)
  pool.incarnation = life
  if not (unknown and trust) then
    pool.quarantine = math.max(pool.quarantine, now + pool.ttl + skew)
  end
  write_pool(key, pool)
  return pool
end
