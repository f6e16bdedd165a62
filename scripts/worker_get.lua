-- worker_get: shows a page of a pool's ring.
-- Uses   format clock integer word incarnation pool
-- KEYS   [1] the pool (hash, see lib/pool)  [2] index of slots by the moment from which they may be
--        granted (sorted set)
-- ARGV   [1] first worker id  [2] how many  [3] facts, see lib/incarnation
-- Reply  {'unknown'} | {'quarantined', wait, why, '1'} the pool waits and has no layout yet;
--        why: see lib/incarnation
--        | {'ok', layout, epoch, datacenter, width, ttl, slots ever used, wait, now, why, held,
--        unasked, record…} one record a slot in order, as lib/slot writes it, '' for one that was
--        never used; wait is the remaining quarantine, and why '' without one, see
--        lib/incarnation; held: slots whose lease is open, by the index; unasked is '1' where the
--        wait begins only when somebody asks for a worker id
-- Units  width in bits; ttl and wait in milliseconds; times and epoch in milliseconds since 1970 of
--        this server
-- Effect none
local pool, complete = read_pool(KEYS[1], read_head(KEYS[1]))
local wait = math.max(pool.quarantine - now, 0)
if pool.layout == '' and wait == 0 then
  return {'unknown'}
end
local at = standing(pool.incarnation, read_facts(ARGV[3]))
local unasked = not complete or not at.same and not at.refusal
if unasked then
  wait = math.max(wait, pool.ttl, pool.longest)
end
if pool.layout == '' then
  return {'quarantined', integer(wait), why_of(pool.incarnation), '1'}
end
local reply = {'ok', pool.layout, pool.epoch, pool.datacenter, pool.bits, integer(pool.ttl), integer(pool.records), integer(wait), now_text, wait > 0 and why_of(at.refusal and pool.incarnation or at.word) or '',
  integer(redis.call('ZCOUNT', KEYS[2], '(' .. now_text, '+inf')), unasked and '1' or '0'}
local first = tonumber(ARGV[1])
local last = math.min(first + tonumber(ARGV[2]), 2 ^ pool.bits) - 1
for id = first, last do
  reply[#reply + 1] = redis.call('HGET', KEYS[1], 's:' .. integer(id)) or ''
end
return reply
