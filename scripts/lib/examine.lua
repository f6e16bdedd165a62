-- examine: detects lost state in a worker-id pool (lib/pool).
local function write_pool(key, pool)
  redis.call('HSET', key, 'pool', head_of(pool))
end

-- examine reads a pool and detects that state may have been lost: another incarnation wrote it, or
-- the pool is missing, whole or in part. It then quarantines the pool for window + skew, the
-- longest time that a window can still be open. A window is as long as the longest of these ttls:
-- the pool's, the longest that any process using the pool allows (`longest` is the caller's), and,
-- while the layout is not known, the caller's `ttl`. A later, longer ttl makes a quarantine longer;
-- none makes it shorter. With `trust` a pool without any key is new, and stays unwritten. examine
-- returns nothing, and writes nothing, if neither the caller nor the pool has a ttl; with a refusal
-- of lib/incarnation beside it where that is the reason. head is the pool's (read_head).
local function examine(key, head, index, names, ttl, longest, skew, trust, facts)
  local pool, complete, unknown = read_pool(key, head)
  local at, before = standing(pool.incarnation, facts), math.max(pool.ttl, pool.longest)
  if at.refusal then
    if at.word then
      pool.incarnation = at.word
      write_pool(key, pool)
    end
    return nil, at.refusal
  end
  local told = pool.layout ~= '' and pool.ttl or math.max(pool.ttl, ttl or 0)
  local window = math.max(told, pool.longest, longest)
  local same = complete and at.same
  if same and window == before and told == pool.ttl then
    if at.word ~= pool.incarnation then
      pool.incarnation = at.word
      write_pool(key, pool)
    end
    return pool
  end
  if window == 0 then
    return nil
  end
  -- Both are read before any write, so that a key of another type ends the script before anything
  -- has changed.
  local beside = redis.call('ZCARD', index) + redis.call('HLEN', names)
  if same and pool.quarantine > 0 then
    pool.quarantine = pool.quarantine + window - before
  elseif not same and not (unknown and trust and beside == 0) then
    pool.quarantine = math.max(pool.quarantine, now + window + skew)
  end
  if not complete then
    pool.next, at.word = 0, because(at.word, 'missing')
  end
  if pool.layout == '' or pool.ttl == 0 then
    pool.ttl = told
  end
  pool.incarnation, pool.longest = at.word, math.max(pool.longest, longest)
  if pool.quarantine > 0 or same then
    write_pool(key, pool)
  end
  return pool
end
