-- worker_release: ends a lease. The record stays, so that the slot waits for its turn, and the next
-- window begins after the last timestamp used. Repeating it is harmless.
-- Uses   format clock integer slot
-- KEYS   [1] the pool (hash, see lib/pool)  [2] index of slots by the moment from which they may be
--        granted (sorted set)
-- ARGV   [1] worker id  [2] nonce  [3] not before  [4] end of the last timestamp that was used; ''
--        if not reported  [5] how far ahead of now such a holder may have stamped
-- Reply  {'ok', not after, now} | {'lost'} ended before, or another's
-- Units  ARGV[5] in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok; a repeat writes the same again, so that its acknowledgement has something to
--        wait for
refuse_newer('pool', redis.call('HGET', KEYS[1], 'pool'))
local slot = read_slot(KEYS[1], ARGV[1])
if not slot or slot.nonce ~= ARGV[2] or slot.from ~= ARGV[3] then
  return {'lost'}
end
if slot.state == 'h' then
  if tonumber(slot.till) <= now then
    return {'lost'}
  end
  local used = tonumber(ARGV[4]) or (now + tonumber(ARGV[5]))
  slot.state, slot.till = 'r', integer(math.min(tonumber(slot.till), math.max(used, tonumber(slot.from))))
  redis.call('ZREM', KEYS[2], ARGV[1]) -- a script whose first write adds nothing may go on when memory is full
  write_slot(KEYS[1], KEYS[2], ARGV[1], slot)
else
  redis.call('PERSIST', KEYS[1]) -- it has no end; first, as above
  write_record(KEYS[1], ARGV[1], slot)
end
return {'ok', slot.till, now_text}
