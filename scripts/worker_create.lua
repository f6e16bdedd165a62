-- worker_create: declares a pool new: no worker id of it is in use anywhere, so that nothing has to be waited for.
-- Uses   clock integer incarnation pool examine
-- KEYS   [1] the pool (hash, see lib/pool)
-- ARGV   [1] layout  [2] epoch  [3] datacenter  [4] width of a worker id  [5] ttl
-- Reply  {'created', now} | {'exists', layout, epoch, datacenter, ttl} it has granted worker ids, or was declared before
-- Units  ttl in milliseconds; times and epoch in milliseconds since 1970 of this server; width in bits
-- Effect writes on created
local pool = read_pool(KEYS[1])
if pool.layout ~= '' or pool.records > 0 then
  return {'exists', pool.layout, pool.epoch, pool.datacenter, integer(pool.ttl)}
end
pool.layout, pool.epoch, pool.datacenter, pool.bits, pool.ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
pool.incarnation, pool.quarantine = incarnation(), 0
write_pool(KEYS[1], pool)
return {'created', integer(now)}
