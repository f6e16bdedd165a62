-- awaited: tells the processes where a client waits for the end of a token's attempt that it has
-- ended. Whoever missed the message finds out later by itself. awaited is the record's mark that
-- there is such a process, or false.
local function tell_waiting(awaited, key, channel)
  if awaited then
    redis.call('PUBLISH', channel, key)
  end
end
