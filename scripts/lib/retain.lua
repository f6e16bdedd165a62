-- retain: keeps a record at least `ms` longer than now; never shortens what it has.
local function keep_for(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end
