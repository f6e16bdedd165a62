-- token_extend: the heartbeat of the attempt that holds the claim. A lease of 0 says that the
-- attempt ended without an answer: the token is in doubt from now on, also if that attempt had
-- recorded one, which it takes back.
-- Uses   clock integer under_way awaited format record
-- KEYS   [1] the operation's record (string, lib/record)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] lease, '' for the one it was claimed with  [3] how long the record stays
--        while there is no answer  [4] channel of the waiting
-- Reply  {'ok', lease until} | {'stale'} the claim is no longer this owner's | {'gone'} no such
--        record
-- Units  ARGV[2], ARGV[3] milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok only; may take operations whose records have ended off the list
local text, owned = redis.call('GET', KEYS[1]), 'claimed\t' .. ARGV[1] .. '\t'
if text and string.sub(text, 1, #owned) ~= owned and ARGV[2] == '0' then
  owned = 'completed\t' .. ARGV[1] .. '\t'
end
if text and ARGV[1] ~= '' and string.sub(text, 1, #owned) == owned then
  local rest, awaited, lease = string.match(text, '^%d*()\t(1?)\t[^\t]*\t%d*\t(%d*)', #owned + 1)
  if ARGV[2] ~= '' then
    lease = ARGV[2]
  end
  local lease_end, stays = integer(now + lease), integer(math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])))
  unlist()
  list_until(lease_end, integer(now + stays))
  redis.call('SET', KEYS[1], 'claimed\t' .. ARGV[1] .. '\t' .. lease_end .. string.sub(text, rest, string.find(text, '\n', rest, true)), 'PX', stays)
  if lease == '0' then
    tell_waiting(awaited, ARGV[4])
  end
  return {'ok', lease_end}
end

if not state_of(text) then
  return {'gone'}
end
return {'stale'}
