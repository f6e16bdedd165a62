-- awaited: notifies the processes that wait for the end of a token's attempt. A process that misses
-- the message finds out later by polling. awaited is the record's field of that name: '1' if a
-- client waits, or false.
local function tell_waiting(awaited, key, channel)
  if awaited then
    redis.pcall('PUBLISH', channel, key) -- scripts may not, on some engines
  end
end
