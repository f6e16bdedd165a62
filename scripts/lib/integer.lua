-- integer: writes a whole Lua number as digits. tostring() would answer 1.7e+15, and a number in a
-- reply is cut to what C's long long holds.
local function integer(n)
  return string.format('%.0f', n)
end
