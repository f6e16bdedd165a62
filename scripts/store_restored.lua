-- store_restored: has the state beside a note of lib/incarnation count as possibly lost, once: the
-- server was started from a copy or a backup, whose notes say nothing of what came after it.
-- Uses   pool
-- KEYS   [1] a marker (string, 'word …') or a pool (hash, see lib/pool)
-- ARGV   none
-- Reply  {'marked'} | {'none'} it has no note
-- Units  none
-- Effect writes on marked; a repeat writes the same
local key = KEYS[1]
local kind = redis.call('TYPE', key).ok
if kind == 'string' then
  local rest = string.match(redis.call('GET', key), '^%S+(.*)$')
  if not rest then
    return {'none'}
  end
  redis.call('SET', key, 'restored' .. rest)
  return {'marked'}
end
local pool = kind == 'hash' and read_pool(key)
if not pool or pool.layout == '' and pool.incarnation == '' then
  return {'none'}
end
pool.incarnation = 'restored'
redis.call('HSET', key, 'pool', head_of(pool))
return {'marked'}
