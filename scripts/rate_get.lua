-- rate_get: reads the theoretical arrival time of a principal's next request (GCRA).
-- Uses   format
-- KEYS   [1] the principal's flow (string)
-- ARGV   none
-- Reply  {'ok', until or -1 for none, now}
-- Units  nanoseconds since 1970, as text; now is the server's clock
-- Effect none
local time, flow = redis.call('TIME'), redis.call('GET', KEYS[1])
refuse_newer('rate', flow)
return {'ok', flow or '-1', time[1] .. string.format('%06d000', time[2])}
