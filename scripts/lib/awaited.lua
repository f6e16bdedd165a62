-- awaited: tells the processes where a client waits for the end of a token's attempt that it has ended. Whoever missed the message finds out later by itself.
local function tell_waiting(key, channel)
  if redis.call('HGET', key, 'awaited') then
    redis.call('PUBLISH', channel, key)
  end
end
