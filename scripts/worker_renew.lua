-- worker_renew: moves the end of a lease's window. Only for the grant that nonce and not before
-- name together, and only while its window is open: an ended lease is never revived. A grant that
-- this server has lost is written down anew if its holder proves that its window is open, and
-- no other grant of the id can have been made since.
-- Uses   format clock integer word incarnation pool examine slot slot_names
-- KEYS   [1] the pool (hash, see lib/pool)  [2] index of slots by the moment from which they may be
--        granted (sorted set)  [3] slots by nonce and identity (hash)
-- ARGV   [1] worker id  [2] nonce  [3] not before  [4] ttl, which must be the pool's, '' for
--        whatever that is  [5] skew, as worker_acquire  [6] trust | wait, as worker_acquire the
--        proof, for a grant that was lost; each '' if the holder does not send it:
--        [7] not after, as it was confirmed last  [8] fence  [9] identity  [10] layout  [11] epoch
--        [12] datacenter  [13] width of a worker id
--        [14] the longest ttl that the caller's settings allow; 0: not set
--        [15] facts, see lib/incarnation
-- Reply  {'ok', not after, ttl, now} | {'lost'} ended, released, another's, or not proven |
--        {'layout', layout, epoch, datacenter, ttl, '0'} the pool's ttl is another |
--        {'ended', layout, epoch} no id can have the present time |
--        a refusal, see lib/incarnation
-- Units  ttl and skew in milliseconds; times and epoch in milliseconds since 1970 of this server;
--        width in bits
-- Effect writes on ok, and where it notices that state may have been lost
local key, index, names, id, nonce, from = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
local head = read_head(key)
redis.call('PERSIST', key) -- it has no end; a script whose first write adds nothing may go on when memory is full
local skew, confirmed, fence = tonumber(ARGV[5]), tonumber(ARGV[7]) or 0, tonumber(ARGV[8]) or 0
local pool, refusal = examine(key, head, index, names, tonumber(ARGV[4]), tonumber(ARGV[14]), skew, ARGV[6] == 'trust', read_facts(ARGV[15]))
if refusal then
  return refusal
end
if not pool or pool.ttl == 0 then
  return {'lost'}
end
if pool.layout ~= '' and ARGV[4] ~= '' and tonumber(ARGV[4]) ~= pool.ttl then
  return {'layout', pool.layout, pool.epoch, pool.datacenter, integer(pool.ttl), '0'}
end
if pool.layout ~= '' and ends_of(pool) <= now then
  return {'ended', pool.layout, pool.epoch}
end
if confirmed > now + pool.ttl + skew then
  confirmed = 0
end

local open_until = pool.quarantine > now and now + skew or now -- by the clock of every server that can have granted it
local before = read_slot(key, id)

local function renewed(till)
  return {'ok', till, integer(pool.ttl), now_text}
end

if before and before.nonce == nonce and before.from == from and before.state == 'h' then
  local till = math.max(confirmed, tonumber(before.till))
  if till <= open_until then
    return {'lost'}
  end
  before.till = integer(math.max(till, now + pool.ttl))
  write_slot(key, index, id, before)
  return renewed(before.till)
end

-- vanished reports whether the stored record, if any, is older than this grant.
local function vanished()
  return not before or (tonumber(before.from) < tonumber(from) and tonumber(before.till) <= tonumber(from))
end

local function same_pool()
  return ARGV[10] ~= '' and ARGV[11] ~= '' and ARGV[12] ~= '' and ARGV[13] ~= ''
    and (pool.layout == '' or (pool.layout == ARGV[10] and pool.epoch == ARGV[11] and pool.datacenter == ARGV[12] and pool.bits == ARGV[13]))
end

-- plausible reports whether such a grant is possible: its numbers have the form that this server
-- writes, since the restored record is read again.
local function plausible()
  return string.match(nonce, '^%S+$') and string.match(from, '^%d+$') and string.match(id, '^%d+$') and integer(tonumber(id)) == id
    and tonumber(id) < 2 ^ tonumber(ARGV[13]) and tonumber(from) < confirmed and fence > 0 and fence <= now_us + skew * 1000
end

if confirmed <= now + skew or not (same_pool() and plausible() and vanished()) then
  return {'lost'}
end
-- A lost grant is written in place of the stored record. First the names are read, so that a key of
-- another type ends the script before anything has changed.
redis.call('HLEN', names)
if pool.layout == '' then
  pool.ttl = tonumber(ARGV[4]) or pool.ttl
end
pool.layout, pool.epoch, pool.datacenter, pool.bits = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
pool.fence = integer(math.max(tonumber(pool.fence) or 0, fence))
if not before then
  pool.records = pool.records + 1
end
local slot = {nonce = nonce, from = from, till = integer(math.max(confirmed, now + pool.ttl)), fence = integer(fence), state = 'h', identity = ARGV[9]}
write_slot(key, index, id, slot, head_of(pool))
name_slot(names, id, nonce, slot.identity, before and before.nonce, before and before.identity)
return renewed(slot.till)
