-- operation_forget: forgets the answer that an operation has, so that the next request begins, with
-- a larger fence. It is refused while an attempt may run, and where it is not known what one did.
-- Uses   format clock integer record words touch
-- KEYS   [1] the operation's record (string, lib/record)
-- ARGV   none
-- Reply  {'ok'} | {'already'} there is no answer, and the next request begins
--        | {'running', remaining lease} | {'in-doubt', lease ended at, 'open' | 'refused' by an
--        operator} | {'unknown'} no such record
-- Units  spans in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok and already; a repeat writes the same again, so that its acknowledgement has
--        something to wait for
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
local state = state_of(text)
if not state then
  return {'unknown'}
end
local record = words_of(text)
local left = (tonumber(record['until']) or 0) - now
if state == 'claimed' and left > 0 then
  return {'running', integer(left)}
end
if state == 'claimed' then
  return {'in-doubt', record['until'], record.settled == 'refused' and 'refused' or 'open'}
end
record.state, record.owner, record.decision = 'issued', '', ''
touch()
redis.call('SET', KEYS[1], record_of(record), 'KEEPTTL')
if state == 'issued' then
  return {'already'}
end
return {'ok'}
