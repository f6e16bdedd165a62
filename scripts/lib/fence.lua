-- fence: the next fencing token after `previous` (string, or false for none). It is at least the
-- server's microseconds, so it exceeds all earlier ones even after a loss of their record. It stays
-- below 2^53 until the year 2255.
local function next_fence(previous)
  return math.max((tonumber(previous or 0) or 0) + 1, now_us)
end
