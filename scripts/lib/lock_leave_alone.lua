-- lock_leave_alone: the fast path of lock_leave, for a token that holds an exclusive lock without
-- waiters, also such as were set aside. In every other case the script goes on after it.
local value = redis.call('GET', KEYS[1])
local mine = value and string.sub(value, 1, 22) == ARGV[1]
local first = mine and first_in_line(KEYS[3])
if mine and first == false then
  local past = redis.call('PTTL', KEYS[2]) - redis.call('PTTL', KEYS[1])
  redis.call('DEL', KEYS[1])
  if past > 0 then
    redis.call('PEXPIRE', KEYS[2], past) -- the fence is remembered for as long after this end as after the lease's
  end
  return {'free'}
end
