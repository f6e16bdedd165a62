-- operation_resolve: one caller at a time begins to find out what became of an operation in doubt.
-- The attempt in doubt loses its claim: what it says from then on does not count. The caller closes
-- the operation at whatever keeps its effect, for attempts with the fence or a smaller one, and
-- ends with operation_settle, or with a lease of 0 if it has found nothing out: the longer it has
-- been asked in vain, the later the next one may ask.
-- Uses   format clock integer awaited
-- KEYS   [1] the token's record (hash)
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
local record = redis.call('HMGET', KEYS[1], 'state', 'until', 'fence', 'settled', 'resolver', 'resolve_until', 'asked', 'awaited')
local state = record[1]
refuse_newer('token', state)
if not state then
  return {'unknown'}
end
if state ~= 'claimed' or record[4] == 'refused' then
  return {'not-in-doubt', state == 'claimed' and 'refused' or state}
end
local left = tonumber(record[2]) - now
if left > 0 then
  return {'running', integer(left)}
end
local asked, mine, ends = tonumber(record[7] or 0), owner ~= '' and record[5] == owner, now + lease
if lease == 0 then
  if not mine then
    return {'stale'}
  end
  ends = now + math.min(500 * 2 ^ math.min(asked, 7), 60000)
  owner = ''
elseif not mine then
  left = tonumber(record[6] or 0) - now
  if left > 0 then
    return {'busy', integer(left)}
  end
  asked = asked + 1
end
redis.call('HSET', KEYS[1], 'owner', '', 'resolver', owner, 'resolve_until', integer(ends), 'asked', integer(asked))
if owner == '' then
  tell_waiting(record[8], KEYS[1], ARGV[3])
end
return {'ok', record[3], integer(ends), integer(asked)}
