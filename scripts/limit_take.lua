-- limit_take: takes from a rate limit, of several equal calls as many as fit (GCRA, kept as how
-- much of the burst is in use and when that was so). A negative cost gives back; 0 reads.
-- Uses   format clock integer
-- KEYS   [1] the limit (string 'at used')
-- ARGV   [1] cost of each call  [2] how many calls  [3] how much may be taken  [4] in how long
--        [5] burst: how much may be in use
-- Reply  {'ok', granted, remaining, reset, wait}: of the calls the first so many are granted;
--        remaining of the burst; reset, until none of it is in use; wait, until a refused call
--        fits, 0 if none was refused
-- Units  ARGV[4], reset, wait and `at` in microseconds, `at` since 1970; used may have a fraction
-- Effect writes if something is granted that is not free, or the clock was set back
local limit, cost, calls, burst = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[5])
local each = ARGV[4] / ARGV[3] -- microseconds
local almost = 0.000000001 -- of one: what rounding may cost
-- how long the rate takes to give so much; 95 years at most, where callers state different rates
local function span(n)
  return math.min(math.ceil(n * each), 3000000000000000)
end
local at, used, again = now_us, 0, false
local noted = redis.call('GET', limit)
refuse_newer('limit', noted)
if noted then
  local before, taken = string.match(noted, '^(%d+) (%S+)$')
  at, used = tonumber(before) or now_us, tonumber(taken) or 0
  again = at > now_us -- the clock was set back: what is in use begins anew to be free again
end
used = math.max(0, used - math.max(0, now_us - at) / each)
local granted = calls
if cost > 0 then
  granted = math.max(0, math.min(calls, math.floor((burst - used) / cost + almost)))
end
if granted * cost ~= 0 or again then
  used = math.max(0, used + granted * cost)
  if used < almost then
    redis.call('DEL', limit)
  else
    redis.call('SET', limit, now_us_text .. ' ' .. string.format('%.17g', used), 'PX', integer(math.max(1000, math.ceil(span(used) / 1000))))
  end
end
local wait = 0
if granted < calls then
  wait = span(used + cost - burst)
end
return {'ok', integer(granted), integer(math.max(0, math.floor(burst - used + almost))), integer(span(used)), integer(wait)}
