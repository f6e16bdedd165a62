-- lock_enter_alone: the fast path of lock_enter, for an uncontended lock: it is exclusive,
-- redislock's script has obtained it earlier in the same call (ARGV[12], its reply), it has no
-- waiter, and no loss of state has to be checked. In every other case the script goes on after it.
local obtained = ARGV[12]
local waited_for = (obtained or KEYS[6]) and first_in_line(KEYS[3]) -- before a marker is written: it may be no queue

if obtained and not KEYS[6] and not waited_for then
  if waited_for == nil then
    drop(KEYS[3], KEYS[4], ARGV[1]) -- it may be one of those that were set aside
  end
  local last = last_grant or '0'
  local previous = tonumber(string.match(last, '^%d+') or 0)
  -- else this server's time is behind, or the token has asked before
  if previous < now_us and not string.find(last, ARGV[1], 1, true) then
    redis.call('SET', KEYS[2], now_us_text .. ' ' .. ARGV[1] .. ' ' .. now_text .. ' -', 'PX', ARGV[5])
    return {'granted', now_us_text, now_text, now_text}
  end
end
