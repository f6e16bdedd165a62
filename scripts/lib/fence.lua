-- fence: the next fencing token after `previous` (string, or false for none). It is at least the
-- server's microseconds, so it also grows past all earlier ones when the record of them was lost;
-- it stays below 2^53 until the year 2255.
local function next_fence(previous)
  return math.max((tonumber(previous or 0) or 0) + 1, now_us)
end
