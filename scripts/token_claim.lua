-- token_claim: reads and claims a token in one step. At most one owner holds a token's claim; a
-- repeat by that owner gets the same grant.
-- Uses   format clock integer fence retain under_way
-- KEYS   [1] the token's record (hash)  [2] the operations under way (sorted set)
-- ARGV   [1] owner, the secret that names this attempt; a remote caller may choose it
--        [2] fingerprint of the request  [3] lease  [4] policy: hold | takeover
--        [5] retention of the answer  [6] scope of the route, '' for none, '*' for any  [7]
--        'issued': only an issued token is valid | 'any': the client's own key, which may be new
--        [8] 'await': if the claim is another's, its end is published on the channel of the
--        waiting | ''
--        [9] route, '' is the scope of an issued token, and [10] request id of the attempt, for
--        people; '' for none
--        [11] whose the operation is, a digest; '' is not noted
--        [12] how long the record stays while there is no answer
--        [13] '1': whoever finds it in doubt on the list may ask the resolver of its route | ''
-- Reply  {'granted', fence, attempt, lease until} | {'replay', answer} | {'replay', '', bytes} of
--        an answer over 16 KiB, which token_answer returns | {'busy', lease left} of the attempt
--        | {'resolving', lease left} of a resolver
--        | {'in-doubt', lease ended at, 'open' | 'refused' by an operator}
--        | {'mismatch'} another request used it | {'unknown'} never issued, expired or lost
-- Units  ARGV[3], ARGV[5], ARGV[12] and spans in milliseconds; times in milliseconds since 1970 of
--        this server; attempt counts from 1
-- Effect writes on granted, and on busy, resolving and in-doubt the field awaited; a grant takes
--        up to four operations whose records have ended off the list
local owner, fingerprint, lease, policy = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local record = redis.call('HMGET', KEYS[1], 'state', 'owner', 'fingerprint', 'until', 'fence', 'attempts', 'policy', 'scope', 'began', 'settled', 'size',
  'resolver', 'resolve_until')
local state, held_by, lease_end = record[1], record[2], tonumber(record[4] or 0)
refuse_newer('token', state)

if not state and ARGV[7] == 'issued' then
  return {'unknown'}
end
if ARGV[6] ~= '*' and (record[8] or '') ~= '' and record[8] ~= ARGV[6] then
  return {'mismatch'}
end
if (state == 'completed' or state == 'claimed') and record[3] ~= fingerprint then
  return {'mismatch'}
end
if state == 'completed' then
  if record[11] then
    return {'replay', '', record[11]}
  end
  return {'replay', redis.call('HGET', KEYS[1], 'answer')}
end

local function grant(fence, attempt, began)
  local ends = integer(now + lease)
  list_until(ends, now, ARGV[12])
  redis.call('HSET', KEYS[1], 'state', 'claimed', 'owner', owner, 'fingerprint', fingerprint, 'policy', policy,
    'lease', ARGV[3], 'until', ends, 'fence', fence, 'attempts', attempt, 'began', began,
    'route', ARGV[9] ~= '' and ARGV[9] or record[8] or '', 'request', ARGV[10], 'keep', ARGV[5])
  if ARGV[11] ~= '' then
    redis.call('HSET', KEYS[1], 'whose', ARGV[11])
  end
  if ARGV[13] ~= '' then
    redis.call('HSET', KEYS[1], 'asks', ARGV[13])
  end
  if record[10] or record[12] then -- what was decided about an earlier attempt
    redis.call('HDEL', KEYS[1], 'decision', 'resolver', 'resolve_until', 'asked')
  end
  if state then
    keep_for(KEYS[1], ARGV[12])
  else -- a new record has no TTL yet
    redis.call('PEXPIRE', KEYS[1], ARGV[12])
  end
  return {'granted', fence, attempt, ends}
end

if state == 'claimed' then
  if held_by == owner then
    return grant(record[5], record[6], record[9] or now_text)
  end
  if ARGV[8] == 'await' then
    redis.call('HDEL', KEYS[1], 'awaited') -- first: a script whose first write adds nothing may go on when memory is full
    redis.call('HSET', KEYS[1], 'awaited', '1')
  end
  if lease_end > now then
    return {'busy', integer(lease_end - now)}
  end
  if (record[12] or '') ~= '' and tonumber(record[13]) > now then -- somebody finds out what became of it
    return {'resolving', integer(tonumber(record[13]) - now)}
  end
  if policy ~= 'takeover' or record[7] ~= 'takeover' then
    return {'in-doubt', record[4], record[10] == 'refused' and 'refused' or 'open'}
  end
end
return grant(integer(next_fence(record[5])), integer(tonumber(record[6] or 0) + 1), now_text)
