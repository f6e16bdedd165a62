-- token_claim: reads and claims a token in one step. At most one owner holds a token's claim; a
-- repeat by that owner gets the same grant.
-- Uses   clock integer under_way format record words fence touch
-- KEYS   [1] the operation's record (string, lib/record)  [2] the operations under way (sorted set)
-- ARGV   [1] owner, the secret that names this attempt; a remote caller may choose it
--        [2] terms, words of the record with a tab between them: retention of the answer, lease,
--        fingerprint of the request, policy (hold | takeover), route and request id of the
--        attempt for people, whose the operation is (a digest), and '1' if the resolver of its
--        route may be asked; each of the last four may be empty
--        [3] lease  [4] scope of the route, '' for none, '*' for any  [5] 'issued': only an
--        issued token is valid | 'any': the client's own key, which may be new
--        [6] 'await': if the claim is another's, its end is published on the channel of the
--        waiting | ''  [7] how long the record stays while there is no answer
-- Reply  {'granted', fence, attempt, lease until} | {'replay', answer} | {'replay', '', bytes} of
--        an answer over 16 KiB, which token_answer returns | {'busy', lease left} of the attempt
--        | {'resolving', lease left} of a resolver
--        | {'in-doubt', lease ended at, 'open' | 'refused' by an operator}
--        | {'mismatch'} another request used it | {'unknown'} never issued, expired or lost
-- Units  retention, lease, ARGV[7] and spans in milliseconds; times in milliseconds since 1970 of
--        this server; attempt counts from 1
-- Effect writes on granted, and on busy, resolving and in-doubt the word awaited; a grant may
--        take operations whose records have ended off the list
local text = redis.call('GETRANGE', KEYS[1], 0, 2047)
local asked = string.match(ARGV[2], '^%d+\t%d+\t(%S+)')
local scope, fingerprint = string.match(text, '^completed\t%S*\t%d*\t1?\t([^\t]*)\t%d*\t%d*\t(%S*)')
if fingerprint then
  local ended = string.find(text, '\n', 1, true)
  if fingerprint ~= asked or scope ~= '' and scope ~= ARGV[4] and ARGV[4] ~= '*' then
    return {'mismatch'}
  end
  if #text < 2048 then
    return {'replay', string.sub(text, ended + 1)}
  end
  local size = redis.call('STRLEN', KEYS[1]) - ended
  if size > 16384 then
    return {'replay', '', string.format('%d', size)}
  end
  return {'replay', redis.call('GETRANGE', KEYS[1], ended, -1)}
end

local lease_end, stays, claimable = integer(now + ARGV[3]), ARGV[7], ''
if text == '' then
  scope = ARGV[5] == 'any' and ''
else -- a token that was issued, and nobody has claimed yet
  scope, claimable = string.match(text, '^issued\t\t\t\t([^\t]*)\t\t\t\t\t\t\t\t\t\t\t\t(%d+)\t\t\t\t\t\t\n$')
  stays = integer(math.max(redis.call('PTTL', KEYS[1]), tonumber(stays)))
end
if scope and (scope == '' or scope == ARGV[4] or ARGV[4] == '*') then
  list_until(lease_end, integer(now + stays))
  redis.call('SET', KEYS[1], 'claimed\t' .. ARGV[1] .. '\t' .. lease_end .. '\t\t' .. scope .. '\t' .. ARGV[2] .. '\t' .. now_us_text .. '\t1\t' ..
    now_text .. '\t' .. claimable .. '\t\t\t\t\t\t\n', 'PX', stays)
  return {'granted', now_us_text, '1', lease_end}
end
if text == '' then
  return {'unknown'}
end

local state, record, policy = state_of(text), words_of(text), string.match(ARGV[2], '^%d+\t%d+\t%S+\t(%l+)')
if record.scope ~= '' and record.scope ~= ARGV[4] and ARGV[4] ~= '*' or state == 'claimed' and record.fingerprint ~= asked then
  return {'mismatch'}
end
if state == 'claimed' and record.owner ~= ARGV[1] then
  if ARGV[6] == 'await' then
    touch()
    record.awaited = '1'
    redis.call('SET', KEYS[1], record_of(record), 'KEEPTTL')
  end
  local left = record['until'] - now
  if left > 0 then
    return {'busy', integer(left)}
  end
  if record.resolver ~= '' and record.resolve_until - now > 0 then -- somebody finds out what became of it
    return {'resolving', integer(record.resolve_until - now)}
  end
  if policy ~= 'takeover' or record.policy ~= 'takeover' then
    return {'in-doubt', record['until'], record.settled == 'refused' and 'refused' or 'open'}
  end
end
if state == 'issued' or record.owner ~= ARGV[1] then
  record.fence, record.attempts, record.began = integer(next_fence(record.fence)), integer((tonumber(record.attempts) or 0) + 1), now_text
end
list_until(lease_end, integer(now + stays))
redis.call('SET', KEYS[1], 'claimed\t' .. table.concat({ARGV[1], lease_end, record.awaited, record.scope, ARGV[2], record.fence, record.attempts, record.began,
  record.claimable, record.settled, '', '', '', ''}, '\t') .. '\t\n', 'PX', stays)
return {'granted', record.fence, record.attempts, lease_end}
