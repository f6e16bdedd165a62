-- operation_forget: forgets the answer that an operation has, so that the next request begins, with
-- a larger fence. It is refused while an attempt may run, and where it is not known what one did.
-- Uses   format clock integer
-- KEYS   [1] the token's record (hash)
-- ARGV   none
-- Reply  {'ok'} | {'already'} there is no answer, and the next request begins
--        | {'running', remaining lease} | {'in-doubt', lease ended at, 'open' | 'refused' by an
--        operator} | {'unknown'} no such record
-- Units  spans in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok and already; a repeat writes the same again, so that its acknowledgement has
--        something to wait for
local record = redis.call('HMGET', KEYS[1], 'state', 'until', 'settled')
local state, left = record[1], tonumber(record[2] or 0) - now
refuse_newer('token', state)
if not state then
  return {'unknown'}
end
if state == 'claimed' and left > 0 then
  return {'running', integer(left)}
end
if state == 'claimed' then
  return {'in-doubt', record[2], record[3] == 'refused' and 'refused' or 'open'}
end
redis.call('HDEL', KEYS[1], 'answer', 'size', 'decision') -- first: it runs when memory is full
redis.call('HSET', KEYS[1], 'state', 'issued', 'owner', '')
if state == 'issued' then
  return {'already'}
end
return {'ok'}
