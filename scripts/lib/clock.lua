-- clock: the time of the server that runs the script. now_us microseconds, now milliseconds, both
-- since 1970-01-01 UTC; exact in a Lua number until the year 2255.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
