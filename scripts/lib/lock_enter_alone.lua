-- lock_enter_alone: answers lock_enter before all else, and cheaply, where nobody else has to do with the lock: it is exclusive, the token has just obtained it, nobody
-- waits for it, and no loss of state has to be looked for. Everywhere else the script goes on behind it, as if it were not there.
local function waited_for(queue)
  return redis.call('ZCARD', queue) > 0
end

if ARGV[3] == 'x' and not KEYS[6] and string.sub(redis.call('GET', KEYS[1]) or '', 1, 22) == ARGV[1] then
  local last = redis.call('GET', KEYS[2]) or '0'
  if not string.find(last, ARGV[1], 1, true) and not waited_for(KEYS[3]) then
    local fence = clock[1] .. string.sub('00000' .. clock[2], -6) -- now_us as text: string.format takes longer than a command
    local since, previous = string.sub(fence, 1, -4), tonumber(string.match(last, '^%d+'))
    if previous and previous + run_length >= now_us then
      fence = string.format('%.0f', previous + run_length + 1)
    end
    redis.call('SET', KEYS[2], fence .. ' ' .. ARGV[1] .. ' ' .. since .. ' -', 'PX', ARGV[5])
    return {'granted', fence, since, since}
  end
end
