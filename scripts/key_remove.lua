-- key_remove: removes an API key. Repeating it is harmless.
-- Uses   format
-- KEYS   [1] the keys (hash, see key_add)
-- ARGV   [1] id
-- Reply  {'removed'}, or {'none'}: no key has that id
-- Units  none
-- Effect writes
refuse_newer('key', redis.call('HGET', KEYS[1], ARGV[1]))
if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 then
  return {'removed'}
end
return {'none'}
