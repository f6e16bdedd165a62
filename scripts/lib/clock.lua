-- clock: the time of the server that runs the script. now_us microseconds, now milliseconds, both
-- since 1970-01-01 UTC; exact in a Lua number until the year 2255. now_us_text and now_text are the
-- same as digits: to format a number takes longer than many a command.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local now_us_text = clock[1] .. string.sub('00000' .. clock[2], -6)
local now_text = string.sub(now_us_text, 1, -4)
