-- set_note: puts another word in the place of one that read_note (lib/note) has returned. beside is
-- what it has returned beside it.
local function set_note(key, word, beside)
  if type(beside) == 'string' then
    redis.call('SET', key, word .. beside)
    return
  end
  beside.incarnation = word
  redis.call('HSET', key, 'pool', head_of(beside))
end
