-- worker_renew_plain: the fast path of worker_renew, for a lease that is stored as its holder knows
-- it, in a pool that is complete, of this incarnation and in no quarantine. In every other case the
-- script goes on after it; it would answer the same here, in half as much time again.
local key, index, names, id, nonce, from = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
redis.call('PERSIST', key) -- it has no end; a script whose first write adds nothing may go on when memory is full
local grant, stored = nonce .. ' ' .. from .. ' ', redis.call('HMGET', key, 'pool', 's:' .. id)

if stored[1] and stored[2] and string.sub(stored[2], 1, #grant) == grant then
  local ttl, records, life, quarantine, longest = string.match(stored[1], '^%w%S* %S+ %S+ %d+ (%d+) (%d+) %d+ %d+ (%w+) (%d+) (%d+)$')
  local till, rest = string.match(stored[2], '^(%d+)( %d+ h .*)$', #grant + 1)
  if life and till and life == incarnation(life) and redis.call('HLEN', key) == records + 1 and quarantine - now <= 0 and (ARGV[14] - longest <= 0 or ARGV[14] - ttl <= 0)
    and (ARGV[4] == '' or ARGV[4] == ttl) and (ARGV[7] == '' or ARGV[7] == till) and till - now > 0 and till - ttl <= now then
    till = string.format('%d%06d', (now + ttl) / 1000000, (now + ttl) % 1000000) -- in two parts, since %d takes no more than 32 bits on some machines
    redis.call('ZADD', index, till, id)
    redis.call('HSET', key, 's:' .. id, grant .. till .. rest)
    return {'ok', till, ttl, now_text}
  end
end
