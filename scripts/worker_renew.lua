-- worker_renew: moves the end of a lease's window. Only for the grant that the nonce and the window's start name together, and only while the window is open: an ended lease is never revived.
-- Uses   clock integer slot
-- KEYS   [1] the pool (hash, see worker_acquire)  [2] index of slots by the end of their window (sorted set)
-- ARGV   [1] worker id  [2] nonce  [3] not before  [4] ttl, counted from now; '' for the one it was granted with
-- Reply  {'ok', not after, ttl, now} | {'lost'} ended, released, or another's
-- Units  ttl in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok only
local slot = read_slot(KEYS[1], ARGV[1])
if not slot or slot.nonce ~= ARGV[2] or slot.from ~= ARGV[3] or slot.state ~= 'h' or tonumber(slot.till) <= now then
  return {'lost'}
end
if ARGV[4] ~= '' then
  slot.ttl = ARGV[4]
end
slot.till = integer(math.max(tonumber(slot.till), now + tonumber(slot.ttl)))
write_slot(KEYS[1], KEYS[2], ARGV[1], slot)
return {'ok', slot.till, slot.ttl, integer(now)}
