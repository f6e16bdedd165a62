-- int64: signed 64-bit decimals as strings, since a Lua number loses digits above 2^53.
local function halves(text)
  local digits = string.match(text, '%d+')
  local padded = string.rep('0', 19 - #digits) .. digits
  return tonumber(string.sub(padded, 1, 9)), tonumber(string.sub(padded, 10))
end
local function negative(text)
  return string.sub(text, 1, 1) == '-'
end
local function smaller(a, b)
  if negative(a) ~= negative(b) then
    return negative(a)
  end
  local high_a, low_a = halves(a)
  local high_b, low_b = halves(b)
  if negative(a) then
    return high_a > high_b or high_a == high_b and low_a > low_b
  end
  return high_a < high_b or high_a == high_b and low_a < low_b
end
-- overflows reports whether INCRBY was refused for an overflow.
local function overflows(refusal)
  return string.find(refusal.err, 'overflow', 1, true) ~= nil
end
-- is_int reports whether text is a signed 64-bit decimal as INCRBY writes it: no plus, no leading
-- zero, no space.
local function is_int(text)
  local sign, digits = string.match(text, '^(%-?)(%d+)$')
  if not digits or #digits > 19 or (#digits > 1 or sign == '-') and string.sub(digits, 1, 1) == '0' then
    return false
  end
  local high, low = halves(digits)
  return high < 922337203 or high == 922337203 and low <= (sign == '-' and 6854775808 or 6854775807)
end
