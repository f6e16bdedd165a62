-- store_restored: takes in what an operator says of the server, beside a note of lib/incarnation.
-- restored: it was started from a copy or a backup, whose notes say nothing of what came after it,
-- so the state counts as possibly lost, once. keep, drop: some places of the set are gone for good,
-- and none of them becomes master, so nobody waits for them any more.
-- Uses   format word pool
-- KEYS   [1] a marker (string, 'word …') or a pool (hash, see lib/pool)
-- ARGV   [1] restored | keep | drop  [2] with keep the places that stay, with drop those that are
--        gone: addresses with commas between
-- Reply  {'marked'} | {'none'} it has no note
-- Units  none
-- Effect writes on marked; a repeat writes the same
local key = KEYS[1]

local function said(text)
  local word = read_word(text)
  if ARGV[1] == 'restored' then
    word.id, word.run, word.input, word.epoch, word.disk = '0', '', '', '', word.disk or '0'
    word.why = 'restored'
    return write_word(word)
  end
  local runs = read_places(word.places)
  local named = {}
  for place in string.gmatch(ARGV[2], '[^,]+') do
    named[place] = true
  end
  for place in pairs(read_places(word.places)) do
    if (ARGV[1] == 'drop') == (named[place] or false) then
      runs[place] = nil
    end
  end
  word.places = write_places(runs)
  return word.id and write_word(word) or text
end

local kind = redis.call('TYPE', key).ok
if kind == 'string' then
  local text = redis.call('GET', key)
  refuse_newer('marker', text)
  local word, rest = string.match(text, '^(%S+)(.*)$')
  if not word then
    return {'none'}
  end
  redis.call('SET', key, said(word) .. rest)
  return {'marked'}
end
local pool = kind == 'hash' and read_pool(key, read_head(key))
if not pool or pool.layout == '' and pool.incarnation == '' then
  return {'none'}
end
pool.incarnation = said(pool.incarnation)
redis.call('HSET', key, 'pool', head_of(pool))
return {'marked'}
