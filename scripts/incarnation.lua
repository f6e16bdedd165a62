-- incarnation: reports which incarnation of the server holds this state, and notes it beside the
-- state.
-- Uses   format integer word incarnation
-- KEYS   [1] the marker (string)
-- ARGV   [1] facts, see lib/incarnation
-- Reply  {'same', id, losses} | {'new', id, '0'} there was no marker: a first start, or all
--        state is gone | {'continued', id, losses} another incarnation, with all of the state |
--        {'changed', id, losses} perhaps not with all | {'none', fact} the server has no
--        incarnation that can be known | a refusal, see lib/incarnation. losses: how often it has
--        changed
-- Units  none; an id is 40 hex digits, or 'trusted'
-- Effect writes the marker, also when it is the same: so the caller learns whether the server takes
--        writes
local text = redis.call('GET', KEYS[1])
refuse_newer('marker', text)
local noted, losses = string.match(text or '', '^(%S+) ?(%d*)$')
losses = tonumber(losses) or 0
local at = standing(noted, read_facts(ARGV[1]))
if at.refusal and at.refusal[1] ~= 'unsuitable' then
  if at.word then
    redis.call('SET', KEYS[1], at.word .. ' ' .. integer(losses))
  end
  return at.refusal
end
if noted and not at.same then
  losses = losses + 1
end
redis.call('SET', KEYS[1], (at.word or 'none') .. ' ' .. integer(losses))
if at.refusal then
  return {'none', at.refusal[2]}
end
local function id_of(word)
  return string.match(word, '^[^:]*')
end
local id = id_of(at.word)
if not noted then
  return {'new', id, '0'}
end
if not at.same then
  return {'changed', id, integer(losses)}
end
if id_of(noted) ~= id then
  return {'continued', id, integer(losses)}
end
return {'same', id, integer(losses)}
