-- key_add: stores an API key's record, unless the id has another one. A repeat with the same record
-- gets the same reply.
-- Uses   format
-- KEYS   [1] the keys (hash)
-- ARGV   [1] id  [2] record, without the second in front that this script writes
-- Reply  {'added'}, or {'there'}: the id has another record, and nothing was done
-- Units  the second since 1970
-- Effect writes
local keys, id, record = KEYS[1], ARGV[1], ARGV[2]
local old = redis.call('HGET', keys, id)
refuse_newer('key', old)
if not old then
  redis.call('HSET', keys, id, redis.call('TIME')[1] .. ' ' .. record)
  return {'added'}
end
if string.sub(old, (string.find(old, ' ', 1, true) or 0) + 1) == record then
  return {'added'}
end
return {'there'}
