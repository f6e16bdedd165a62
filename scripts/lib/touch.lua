-- touch: writes the expiry of an operation's record once more, as it is. An acknowledgement waits
-- for that write, and a script that has begun with it goes on when memory is full: it adds nothing.
local function touch()
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then
    redis.call('PEXPIRE', KEYS[1], left)
  end
end
