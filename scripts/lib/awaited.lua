-- awaited: notifies the processes that wait for the end of an operation's attempt. A process that
-- misses the message finds out later by polling. awaited is the record's word of that name.
local function tell_waiting(awaited, channel)
  if awaited == '1' then
    redis.pcall('PUBLISH', channel, KEYS[1]) -- scripts may not, on some engines
  end
end
