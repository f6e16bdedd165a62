-- examine: the noticing of lost state in a worker-id pool (lib/pool).
local function write_pool(key, pool)
  redis.call('HSET', key, 'pool', head_of(pool))
end

-- examine reads a pool and notices that state may have been lost: another incarnation wrote it, a part of it is missing, or it is not there at all. Then it
-- writes down that nothing is to be granted for the longest time that a window can still be open: ttl + skew. A pool that is not there, nor anything beside it,
-- is a new one if `trust`, and stays unwritten. The ttl of a pool whose layout is known stays; until then the longest that anybody tells counts. It returns
-- nothing, and writes nothing, where neither the caller nor the pool tells one.
local function examine(key, index, names, ttl, skew, trust)
  local pool, complete, unknown = read_pool(key)
  local life, longest = incarnation(), pool.layout ~= '' and pool.ttl or math.max(pool.ttl, ttl or 0)
  local same = complete and pool.incarnation == life
  if same and (pool.layout ~= '' or longest == pool.ttl) then
    return pool
  end
  if not ttl and pool.ttl == 0 then
    return nil
  end
  -- Reading both comes before writing: one of another type then ends the script before anything has changed.
  local beside = redis.call('ZCARD', index) + redis.call('HLEN', names)
  if same then
    pool.quarantine = pool.quarantine + longest - pool.ttl
  elseif not (unknown and trust and beside == 0) then
    pool.quarantine = math.max(pool.quarantine, now + longest + skew)
  end
  if not complete then
    pool.next = 0
  end
  if pool.layout == '' or pool.ttl == 0 then
    pool.ttl = longest
  end
  pool.incarnation = life
  if pool.quarantine > 0 then
    write_pool(key, pool)
  end
  return pool
end
