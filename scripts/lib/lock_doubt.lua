-- lock_doubt: reports whether leases may be out that this server has lost. The marker, one for all
-- locks of a slot, holds 'incarnation until': who finds another incarnation, or none, notes that no
-- lock is granted for `span` milliseconds, the longest that a lease can still be open. With a span
-- of 0 nothing is ever in doubt.
local function in_doubt(marker, span)
  if span == 0 then
    return 0
  end
  local life = incarnation()
  local noted, till = string.match(redis.call('GET', marker) or '', '^(%S+) (%d+)$')
  if noted ~= life then
    till = integer(now + span)
    redis.call('SET', marker, life .. ' ' .. till)
  end
  return math.max(tonumber(till) - now, 0)
end
