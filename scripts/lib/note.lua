-- note: the word (lib/word) in a marker or a pool.

-- read_note returns the word of a key, nil if it has none, and what else is there: the rest of a
-- marker's text, or a pool.
local function read_note(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' then
    local text = redis.call('GET', key)
    refuse_newer('marker', text)
    return string.match(text, '^(%S+)(.*)$')
  end
  local pool = kind == 'hash' and read_pool(key, read_head(key))
  if not pool or pool.layout == '' and pool.incarnation == '' then
    return nil
  end
  return pool.incarnation, pool
end
