-- examine: the noticing of lost state in a worker-id pool (lib/pool).
local function write_pool(key, pool)
  redis.call('HSET', key, 'pool', head_of(pool))
end

-- examine reads a pool and notices that state may have been lost: another incarnation wrote it, a
-- part of it is missing, or it is not there at all. Then it writes down that nothing is granted for
-- the longest time that a window can still be open: window + skew. A window is as long as the
-- longest ttl that the pool has, that any process allows which has used it (`longest` is the
-- caller's), or, while its layout is not known, that anybody tells. Whatever is heard of later
-- makes a quarantine longer, never shorter. A pool that is not there, nor anything beside it, is a
-- new one if `trust`, and stays unwritten. examine returns nothing, and writes nothing, where
-- neither the caller nor the pool tells a ttl.
local function examine(key, index, names, ttl, longest, skew, trust)
  local pool, complete, unknown = read_pool(key)
  local life, before = incarnation(), math.max(pool.ttl, pool.longest)
  local told = pool.layout ~= '' and pool.ttl or math.max(pool.ttl, ttl or 0)
  local window = math.max(told, pool.longest, longest)
  local same = complete and pool.incarnation == life
  if same and window == before and told == pool.ttl then
    return pool
  end
  if window == 0 then
    return nil
  end
  -- Reading both comes before writing: one of another type then ends the script before anything has
  -- changed.
  local beside = redis.call('ZCARD', index) + redis.call('HLEN', names)
  if same and pool.quarantine > 0 then
    pool.quarantine = pool.quarantine + window - before
  elseif not same and not (unknown and trust and beside == 0) then
    pool.quarantine = math.max(pool.quarantine, now + window + skew)
  end
  if not complete then
    pool.next = 0
  end
  if pool.layout == '' or pool.ttl == 0 then
    pool.ttl = told
  end
  pool.incarnation, pool.longest = life, math.max(pool.longest, longest)
  if pool.quarantine > 0 then
    write_pool(key, pool)
  end
  return pool
end
