-- lock_doubt: returns for how long leases may be open that this server has lost, 0 for none. The
-- marker, one for all locks of a slot, holds 'incarnation until'. A script that finds another
-- incarnation, or no marker, notes that no lock is granted for `span` milliseconds, the longest
-- that a lease can still be open. With a span of 0 nothing is ever in doubt.
local function in_doubt(marker, span)
  if span == 0 then
    return 0
  end
  local noted, till = string.match(redis.call('GET', marker) or '', '^(%S+) (%d+)$')
  local current = incarnation(noted)
  if noted ~= current then
    till = integer(now + span)
    redis.call('SET', marker, current .. ' ' .. till)
  end
  return math.max(tonumber(till) - now, 0)
end
