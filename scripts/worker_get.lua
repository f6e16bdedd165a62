-- worker_get: shows a page of a pool's ring.
-- Uses   clock integer
-- KEYS   [1] the pool (hash, see worker_acquire)
-- ARGV   [1] first worker id  [2] how many
-- Reply  {'unknown'} | {'ok', layout, epoch, width, ttl of the last grant, slots ever used, now, record…} one record a slot in order, as lib/slot.lua writes it
-- Units  width in bits; times and epoch in milliseconds since 1970 of this server
-- Effect none
local head = redis.call('HMGET', KEYS[1], 'layout', 'epoch', 'bits', 'ttl', 'count')
if not head[1] then
  return {'unknown'}
end
local reply = {'ok', head[1], head[2], head[3], head[4], head[5], integer(now)}
local first = tonumber(ARGV[1])
local last = math.min(first + tonumber(ARGV[2]), tonumber(head[5])) - 1
for id = first, last do
  reply[#reply + 1] = redis.call('HGET', KEYS[1], 's:' .. integer(id)) or ''
end
return reply
