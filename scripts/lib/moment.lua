-- moment: formats a time in milliseconds since 1970 as digits, as integer does, twice as fast.
local function moment(ms)
  return string.format('%d%06d', math.floor(ms / 1000000), ms % 1000000) -- in two parts, since %d takes no more than 32 bits on some machines
end
