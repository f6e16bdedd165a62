-- key_remove: removes an API key. Repeating it is harmless.
-- Uses   none
-- KEYS   [1] the keys (hash, see key_add)
-- ARGV   [1] id
-- Reply  {'removed'}, or {'none'}: no key has that id
-- Units  none
-- Effect writes
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  return {'removed'}
end
return {'none'}
