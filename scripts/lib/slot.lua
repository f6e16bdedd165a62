-- slot: one worker id's record in the pool's hash, field 's:<worker id>' = 'nonce not_before not_after fence state identity'. state is h (held until not_after) or r
-- (released: not_after is where the next window may begin); identity may be empty. Records are never deleted and do not expire.
-- Beside the pool lie an index of its slots by the moment from which they may be granted, and the slots of nonces ('n:<nonce>') and identities ('i:<identity>').
-- Both say nothing that the records do not, and are only believed where the record agrees.
local function read_slot(pool, id)
  local text = redis.call('HGET', pool, 's:' .. id)
  if not text then
    return nil
  end
  local nonce, from, till, fence, state, identity = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%a) (.*)$')
  return {nonce = nonce, from = from, till = till, fence = fence, state = state, identity = identity}
end

-- write_slot writes the index first: one of another type then ends the script before anything has changed. Scripts call it before they write elsewhere.
local function write_slot(pool, index, id, slot)
  redis.call('ZADD', index, slot.state == 'h' and slot.till or integer(now), id)
  redis.call('HSET', pool, 's:' .. id, table.concat({slot.nonce, slot.from, slot.till, slot.fence, slot.state, slot.identity}, ' '))
end

-- name_slot makes a slot known by its nonce and identity, in place of those of the record before.
local function name_slot(names, id, slot, before)
  if before and before.nonce ~= slot.nonce then
    redis.call('HDEL', names, 'n:' .. before.nonce)
    if before.identity ~= '' and before.identity ~= slot.identity and redis.call('HGET', names, 'i:' .. before.identity) == id then
      redis.call('HDEL', names, 'i:' .. before.identity)
    end
  end
  redis.call('HSET', names, 'n:' .. slot.nonce, id)
  if slot.identity ~= '' then
    redis.call('HSET', names, 'i:' .. slot.identity, id)
  end
end
