-- lock_enter_alone: answers lock_enter before all else, and cheaply, where nobody else has to do
-- with the lock: it is exclusive, redislock's script, which has run before it in the same call, has
-- obtained it (ARGV[11], what that returned), nobody waits for it, and no loss of state has to be
-- looked for. Everywhere else the script goes on behind it, as if it were not there.
local waited_for = first_in_line(KEYS[3])

if ARGV[11] and not KEYS[6] and not waited_for then
  local fence = clock[1] .. string.sub('00000' .. clock[2], -6) -- now_us as text: string.format takes longer than a command
  local since = string.sub(fence, 1, -4)
  local last = redis.call('SET', KEYS[2], fence .. ' ' .. ARGV[1] .. ' ' .. since .. ' -', 'PX', ARGV[5], 'GET') or '0'
  local previous = tonumber(string.match(last, '^%d+') or 0)
  if previous + run_length < now_us and not string.find(last, ARGV[1], 1, true) then
    return {'granted', fence, since, since}
  end
  redis.call('SET', KEYS[2], last, 'PX', ARGV[5]) -- this server's time is behind, or the token has asked before
end
