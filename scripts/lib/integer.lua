-- integer: formats a whole Lua number as digits. tostring() would give 1.7e+15, and a number in a
-- reply is cut to C's long long. '%.0f' would take four times as long.
local function integer(n)
  return string.format('%d', n)
end
