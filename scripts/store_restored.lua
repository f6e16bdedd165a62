-- store_restored: takes in what an operator says of the server, beside a note of lib/incarnation.
-- restored: it was started from a copy or a backup, whose notes say nothing of what came after it,
-- so the state counts as possibly lost, once. replicas-gone: replicas which have confirmed are gone
-- for good, and none of them becomes master, so nobody waits for as many any more.
-- Uses   format pool
-- KEYS   [1] a marker (string, 'word …') or a pool (hash, see lib/pool)
-- ARGV   [1] restored | replicas-gone
-- Reply  {'marked'} | {'none'} it has no note
-- Units  none
-- Effect writes on marked; a repeat writes the same
local key = KEYS[1]

local function said(word)
  if ARGV[1] == 'restored' then
    return 'restored'
  end
  return (string.gsub(word, '^(%x+:%w*:%d*:%d%d:%l*):%d+$', '%1'))
end

local kind = redis.call('TYPE', key).ok
if kind == 'string' then
  local text = redis.call('GET', key)
  refuse_newer('marker', text)
  local word, rest = string.match(text, '^(%S+)(.*)$')
  if not word then
    return {'none'}
  end
  redis.call('SET', key, said(word) .. rest)
  return {'marked'}
end
local pool = kind == 'hash' and read_pool(key, read_head(key))
if not pool or pool.layout == '' and pool.incarnation == '' then
  return {'none'}
end
pool.incarnation = said(pool.incarnation)
redis.call('HSET', key, 'pool', head_of(pool))
return {'marked'}
