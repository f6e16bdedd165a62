-- rate_swap: writes the theoretical arrival time of a principal's next request, if it has not
-- changed since it was read.
-- Uses   format
-- KEYS   [1] the principal's flow (string)
-- ARGV   [1] the value read, -1 for none  [2] the new value  [3] its TTL
-- Reply  {'done', now}, or {'other', the present value or -1 for none, now} and nothing was done
-- Units  nanoseconds since 1970, as text; the TTL in milliseconds
-- Effect writes
local flow = KEYS[1]
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d000', time[2])
local is = redis.call('GET', flow) or '-1'
refuse_newer('rate', is)
if is ~= ARGV[1] then
  return {'other', is, now}
end
redis.call('SET', flow, ARGV[2], 'PX', ARGV[3])
return {'done', now}
