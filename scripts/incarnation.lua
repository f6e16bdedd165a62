-- incarnation: returns which incarnation of the server holds this state, and notes it beside the
-- state.
-- Uses   incarnation
-- KEYS   [1] the marker (string)
-- ARGV   none
-- Reply  {'same', id} | {'new', id} there was no marker: a first start, or all state is gone |
--        {'changed', id, previous id}
-- Units  none; an id is 40 hex digits
-- Effect writes the marker, also when it is the same: so the caller learns whether the server takes
--        writes
local id = incarnation()
local previous = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], id)
if previous == id then
  return {'same', id}
end
if previous then
  return {'changed', id, previous}
end
return {'new', id}
