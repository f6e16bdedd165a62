-- lock_doubt: returns for how long leases may be open that this server has lost, 0 for none.
-- Where that is not known it returns 1, and a refusal. The marker, one for all locks of a slot,
-- holds 'word until', the word of lib/incarnation; text is what the script has read. A script
-- that finds another incarnation, or no marker, notes that no lock is granted for `span`
-- milliseconds, the longest that a lease can still be open. With a span of 0 nothing is ever in
-- doubt.
local function in_doubt(marker, text, span, facts)
  if span == 0 then
    return 0
  end
  local noted, till = string.match(text or '', '^(%S+) (%d+)$')
  local at = standing(noted, facts)
  if at.refusal then
    if at.word then
      redis.call('SET', marker, at.word .. ' ' .. till)
    end
    return 1, at.refusal
  end
  if not at.same then
    till = integer(now + span)
  end
  if not at.same or at.word ~= noted then
    redis.call('SET', marker, at.word .. ' ' .. till)
  end
  return math.max(tonumber(till) - now, 0)
end
