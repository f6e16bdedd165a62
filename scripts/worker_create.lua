-- worker_create: declares a pool new: none of its worker ids is in use anywhere, so its first grant
-- need not wait. It can also give an existing pool another shape, once every window of it has ended
-- by the clock of every server, and no state may have been lost.
-- Uses   format clock integer word incarnation pool examine slot
-- KEYS   [1] the pool (hash, see lib/pool)  [2] index of slots by the moment from which they may be
--        granted (sorted set)  [3] slots by nonce and identity (hash)
-- ARGV   [1] layout  [2] epoch  [3] datacenter  [4] width of a worker id  [5] ttl  [6] the longest
--        ttl that the caller's settings allow; 0: not set
--        [7] skew, as worker_acquire, to replace an existing pool; '' leaves it as it is
--        [8] facts, see lib/incarnation
-- Reply  {'created', now} | {'exists', layout, epoch, datacenter, ttl, wait} it has granted worker
--        ids, or was declared before; wait is how long windows can still be open, 0 without [7] |
--        a refusal, see lib/incarnation
-- Units  ttl, skew and wait in milliseconds; times and epoch in milliseconds since 1970 of this
--        server; width in bits
-- Effect writes on created, and with [7] where it notices that state may have been lost
local key, index, names, skew = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[7])
local head, facts = read_head(key), read_facts(ARGV[8])
local has = read_pool(key, head)
local refusal = standing(has.incarnation, facts).refusal
if refusal then
  return refusal
end

-- open_for returns how long a window of the pool can still be open by the clock of any server. A
-- quarantine outlasts all of them. Without one the head is whole, and so are its records.
local function open_for()
  has = examine(key, head, index, names, tonumber(ARGV[5]), tonumber(ARGV[6]), skew, false, facts)
  local last, found, id = has.quarantine, 0, 0
  while has.quarantine <= now and found < has.records and id < 2 ^ has.bits do
    local slot = read_slot(key, integer(id))
    if slot then
      found, last = found + 1, math.max(last, tonumber(slot.till) + skew)
    end
    id = id + 1
  end
  return math.max(last - now, 0)
end

if has.layout ~= '' or has.records > 0 then
  local wait = skew and open_for() or 0
  if not skew or wait > 0 then
    return {'exists', has.layout, has.epoch, has.datacenter, integer(has.ttl), integer(wait)}
  end
  redis.call('DEL', index, names, key)
  has.records, has.next = 0, 0
end
has.layout, has.epoch, has.datacenter, has.bits, has.ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
has.incarnation, has.quarantine, has.longest = standing(nil, facts).word, 0, tonumber(ARGV[6])
write_pool(key, has)
return {'created', now_text}
