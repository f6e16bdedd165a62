-- slot: one worker id's record in the pool's hash, field 's:<worker id>' = 'nonce not_before
-- not_after fence state identity'. state is h (held until not_after) or r (released: not_after is
-- where the next window may begin); identity may be empty. Records are never deleted and do not
-- expire. Two keys beside the pool index its slots by the time from which they may be granted, and
-- by name (lib/slot_names). Both only repeat the records, and count only where the record agrees.
local function read_slot(pool, id)
  local text = redis.call('HGET', pool, 's:' .. id)
  if not text then
    return nil
  end
  local nonce, from, till, fence, state, identity = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%a) (.*)$')
  return {nonce = nonce, from = from, till = till, fence = fence, state = state, identity = identity}
end

-- write_record writes a slot, and the pool's head if that has changed. A repeat calls it alone: the
-- write gives the acknowledgement something to wait for, and the slot keeps its place in the index.
local function write_record(pool, id, slot, head)
  local record = slot.nonce .. ' ' .. slot.from .. ' ' .. slot.till .. ' ' .. slot.fence .. ' ' .. slot.state .. ' ' .. slot.identity
  if head then
    redis.call('HSET', pool, 's:' .. id, record, 'pool', head)
  else
    redis.call('HSET', pool, 's:' .. id, record)
  end
end

-- write_slot writes the index first, so that an index of another type ends the script before
-- anything has changed. Scripts call it before they write elsewhere.
local function write_slot(pool, index, id, slot, head)
  redis.call('ZADD', index, slot.state == 'h' and slot.till or now_text, id)
  write_record(pool, id, slot, head)
end
