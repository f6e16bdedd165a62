-- worker_release: ends a lease now. The record stays, so that the slot waits for its turn. Repeating it is harmless.
-- Uses   clock integer slot
-- KEYS   [1] the pool (hash, see worker_acquire)  [2] index of slots by the end of their window (sorted set)
-- ARGV   [1] worker id  [2] nonce  [3] not before
-- Reply  {'ok'} | {'lost'} ended before, or another's
-- Units  times in milliseconds since 1970 of this server
-- Effect writes on ok; a repeat writes what is there again, so that its acknowledgement has something to wait for
local slot = read_slot(KEYS[1], ARGV[1])
if not slot or slot.nonce ~= ARGV[2] or slot.from ~= ARGV[3] then
  return {'lost'}
end
if slot.state == 'r' then
  write_slot(KEYS[1], KEYS[2], ARGV[1], slot)
  return {'ok'}
end
if tonumber(slot.till) <= now then
  return {'lost'}
end
slot.state, slot.till = 'r', integer(now)
write_slot(KEYS[1], KEYS[2], ARGV[1], slot)
return {'ok'}
