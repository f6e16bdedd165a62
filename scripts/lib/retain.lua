-- retain: keeps a record for at least `ms` milliseconds from now; it never shortens a TTL.
local function keep_for(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end
