-- operation_resolve: one caller at a time begins to find out what became of an operation in doubt.
-- The attempt in doubt loses its claim: what it says from then on does not count. The caller closes
-- the operation at whatever keeps its effect, for attempts with the fence or a smaller one, and
-- ends with operation_settle, or with a lease of 0 if it has found nothing out: the longer it has
-- been asked in vain, the later the next one may ask.
-- Uses   format clock integer record words awaited
-- KEYS   [1] the operation's record (string, lib/record)
-- ARGV   [1] owner, the secret that names the resolver  [2] lease; 0 ends it without a result
--        [3] channel of the waiting
-- Reply  {'ok', fence, lease until, how often it was asked, this time included}, to a lease of 0
--        with the time from which on the next one may ask | {'busy', wait} another one asks, or it
--        is too early to ask again | {'stale'} to a lease of 0: it is not this resolver's any more
--        | {'running', remaining lease} of an attempt | {'not-in-doubt', state} it is issued,
--        completed or refused | {'unknown'} no such record
-- Units  spans in milliseconds; times in milliseconds since 1970 of this server
-- Effect writes on ok only; a repeat by the same owner begins its lease anew, and counts once
local owner, lease = ARGV[1], tonumber(ARGV[2])
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
local state = state_of(text)
if not state then
  return {'unknown'}
end
local record = words_of(text)
if state ~= 'claimed' or record.settled == 'refused' then
  return {'not-in-doubt', state == 'claimed' and 'refused' or state}
end
local left = tonumber(record['until']) - now
if left > 0 then
  return {'running', integer(left)}
end
local asked, mine, ends = tonumber(record.asked) or 0, owner ~= '' and record.resolver == owner, now + lease
if lease == 0 then
  if not mine then
    return {'stale'}
  end
  ends = now + math.min(500 * 2 ^ math.min(asked, 7), 60000)
  owner = ''
elseif not mine then
  left = (tonumber(record.resolve_until) or 0) - now
  if left > 0 then
    return {'busy', integer(left)}
  end
  asked = asked + 1
end
record.owner, record.resolver, record.resolve_until, record.asked = '', owner, integer(ends), integer(asked)
redis.call('SET', KEYS[1], record_of(record), 'KEEPTTL')
if owner == '' then
  tell_waiting(record.awaited, ARGV[3])
end
return {'ok', record.fence, record.resolve_until, record.asked}
