-- counter_era: reports whether the counters of a slot are still in the era that a process knows. It
-- notes a loss of everything, so that all processes hold off.
-- Uses   format clock integer word incarnation int64 counter
-- KEYS   [1] the marker of the slot (string)
-- ARGV   [1] the era that the process knows  [2] how long to hold off after a loss of everything
--        [3] facts, see lib/incarnation
-- Reply  {'same'} | {'changed', era, remaining hold-off} | a refusal, see lib/incarnation
-- Units  ARGV[2] and the reply's time in milliseconds
-- Effect writes
local era, till, _, refusal = read_era(KEYS[1], ARGV[1], tonumber(ARGV[2]), false, read_facts(ARGV[3]))
if refusal then
  return refusal
end
if era == ARGV[1] then
  return {'same'}
end
return {'changed', era, integer(math.max(till - now, 0))}
