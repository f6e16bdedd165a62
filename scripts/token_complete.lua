-- token_complete: records the answer of the attempt that holds the claim, for the retention that
-- the claim has noted. A late owner is accepted until another attempt has taken over; repeating it
-- is harmless, and does not keep the answer for longer.
-- Uses   under_way awaited format record touch
-- KEYS   [1] the operation's record (string, lib/record)  [2] the operations under way (sorted set)
-- ARGV   [1] owner  [2] answer, any bytes  [3] channel of the waiting
-- Reply  {'ok'} | {'already'} this owner's answer is recorded | {'stale'} the claim is another's,
--        or was given back | {'gone'} no such record
-- Units  the retention is in milliseconds
-- Effect writes on ok and already; a repeat writes the same again, so that its acknowledgement has
--        something to wait for
local text, owned = redis.call('GET', KEYS[1]), 'claimed\t' .. ARGV[1] .. '\t'
if text and ARGV[1] ~= '' and string.sub(text, 1, #owned) == owned then
  unlist() -- before what may add something, see lib/under_way
  local awaited, keep = string.match(text, '^%d*\t(1?)\t[^\t]*\t(%d*)', #owned + 1)
  redis.call('SET', KEYS[1], 'completed' .. string.sub(text, 8) .. ARGV[2], 'PX', keep)
  tell_waiting(awaited, ARGV[3])
  return {'ok'}
end

local state = state_of(text)
if not state then
  return {'gone'}
end
if ARGV[1] == '' or state ~= 'completed' or string.sub(text, 11, #ARGV[1] + 11) ~= ARGV[1] .. '\t' then
  return {'stale'}
end
unlist()
touch()
return {'already'}
