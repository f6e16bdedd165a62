-- worker_acquire_plain: the fast path of worker_acquire, for a nonce and an identity that are not
-- known, where each id was granted before and the one that has been free longest has ended or was
-- released, in a pool that is complete, of this incarnation and in no quarantine. In every other
-- case the script goes on after it; it would answer the same here, in half as much time again.
local key, index, names, nonce, identity = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local freest = redis.call('ZRANGE', index, '0', '0')[1]
local stored = redis.call('HMGET', key, 'pool', 's:' .. (freest or ''))

if stored[1] and stored[2] and ARGV[5] == '0' then
  local shape, layout, epoch, datacenter, bits, ttl, records, next_id, fence, life, quarantine, longest =
    string.match(stored[1], '^((%w%S*) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+)) (%d+) (%w+) (%d+) (%d+)$')
  local last_nonce, till, state, last_identity = string.match(stored[2], '^(%S+) %d+ (%d+) %d+ (%a) (.*)$')
  if life and life == incarnation(life) and redis.call('HLEN', key) == records + 1 and quarantine - now <= 0
    and (ARGV[6] == '' or ARGV[6] == layout) and (ARGV[7] == '' or ARGV[7] == epoch) and (ARGV[8] == '' or ARGV[8] == datacenter) and (ARGV[9] == '' or ARGV[9] == ttl)
    and (ARGV[15] == '0' or math.max(ttl, longest) - ARGV[15] == 0)
    and (till - now <= 0 or state == 'r') and till - ttl <= now and fence - now_us < 0 and next_id - 2 ^ bits >= 0 and redis.call('ZCARD', index) - records == 0 then
    local first, second = 'n:' .. nonce, identity ~= '' and 'i:' .. identity or 'n:' .. nonce -- the same twice if there is no identity
    local gone, other = 'n:' .. last_nonce, 'i:' .. last_identity
    local known = redis.call('HMGET', names, first, second, gone, other)
    if not known[1] and not known[2] and known[3] == freest then
      fence = now_us_text
      local head = shape .. ' ' .. fence .. ' ' .. life .. ' ' .. quarantine .. ' ' .. longest
      local from = till - now > 0 and till or now_text -- a released slot may have been used until after now
      till = string.format('%d%06d', (now + ttl) / 1000000, (now + ttl) % 1000000)
      redis.call('ZADD', index, till, freest) -- first, as in lib/slot
      redis.call('HSET', key, 's:' .. freest, nonce .. ' ' .. from .. ' ' .. till .. ' ' .. fence .. ' h ' .. identity, 'pool', head)
      redis.call('HDEL', names, gone, known[4] == freest and other or gone)
      redis.call('HSET', names, first, freest, second, freest)
      return {'granted', freest, from, till, fence, now_text, head, '0'}
    end
  end
end
