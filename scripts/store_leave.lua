-- store_leave: takes in that some places of a word (lib/word) are gone for good. None of them
-- becomes master, so nobody waits for them any more.
-- Uses   format word pool note set_note
-- KEYS   [1] a marker (string, 'word …') or a pool (hash, see lib/pool)
-- ARGV   [1] the places that are gone, host:port, with commas between
-- Reply  {'left'} | {'none'} it has no word with one of them
-- Units  none
-- Effect writes on left; a repeat writes nothing
local text, beside = read_note(KEYS[1])
local word = read_word(text)
local runs, left = read_places(word.places), false
for place in string.gmatch(ARGV[1], '[^,]+') do
  left, runs[place] = left or runs[place] ~= nil, nil
end
if not left then
  return {'none'}
end
word.places = write_places(runs)
set_note(KEYS[1], write_word(word), beside)
return {'left'}
