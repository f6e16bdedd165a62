-- rate_swap: writes until when a principal's requests are spent, if nobody else has written it
-- since it was read.
-- Uses   none
-- KEYS   [1] the principal's flow (string)
-- ARGV   [1] what was read, -1 for none  [2] what is to be there  [3] how long that is kept
-- Reply  {'done', now}, or {'other', what is there or -1 for none, now} and nothing was done
-- Units  nanoseconds since 1970, as text; the time that it is kept in milliseconds
-- Effect writes
local flow = KEYS[1]
local time = redis.call('TIME')
local now = time[1] .. string.format('%06d000', time[2])
local is = redis.call('GET', flow) or '-1'
if is ~= ARGV[1] then
  return {'other', is, now}
end
redis.call('SET', flow, ARGV[2], 'PX', ARGV[3])
return {'done', now}
