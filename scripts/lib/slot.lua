-- slot: one worker id's record in the pool's hash, field 's:<worker id>' =
-- 'nonce not_before not_after fence state ttl identity'; state is h (held until not_after) or r (released), identity may be empty.
local function read_slot(pool, id)
  local text = redis.call('HGET', pool, 's:' .. id)
  if not text then
    return nil
  end
  local nonce, from, till, fence, state, ttl, identity = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%a) (%d+) (.*)$')
  return {nonce = nonce, from = from, till = till, fence = fence, state = state, ttl = ttl, identity = identity}
end

-- write_slot writes the index first: one of another type then ends the script before anything has changed. Scripts call it before they write elsewhere.
local function write_slot(pool, index, id, slot)
  redis.call('ZADD', index, slot.till, id)
  redis.call('HSET', pool, 's:' .. id,
    slot.nonce .. ' ' .. slot.from .. ' ' .. slot.till .. ' ' .. slot.fence .. ' ' .. slot.state .. ' ' .. slot.ttl .. ' ' .. slot.identity)
end
