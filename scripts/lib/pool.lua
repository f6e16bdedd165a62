-- pool: the head of a worker-id pool. The pool is a hash: these ten fields, always all of them, and one field 's:<worker id>' for
-- every worker id that was ever granted (lib/slot). layout, epoch, datacenter, bits, ttl: what the pool is; layout is '' until the first grant fixes them.
-- records: how many slot records belong there. next: no id below it was never granted. fence: the last one. incarnation: the life of the server that wrote
-- last. quarantine: until when nothing is granted.
local head = {'layout', 'epoch', 'datacenter', 'bits', 'ttl', 'records', 'next', 'fence', 'incarnation', 'quarantine'}

-- read_pool returns what is there of a pool, which may be nothing, and whether all of it is there.
local function read_pool(key)
  local found, pool, whole = redis.call('HMGET', key, unpack(head)), {}, 0
  for i, name in ipairs(head) do
    pool[name] = found[i] or ''
    if found[i] then
      whole = whole + 1
    end
  end
  for _, name in ipairs({'ttl', 'records', 'next', 'quarantine'}) do
    pool[name] = tonumber(pool[name]) or 0
  end
  local slots = redis.call('HLEN', key) - whole
  local complete = whole == #head and pool.records == slots
  pool.records = slots
  return pool, complete, whole == 0 and slots == 0
end
