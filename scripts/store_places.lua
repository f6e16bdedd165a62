-- store_places: returns the places of the word of a marker or a pool (lib/word).
-- Uses   format word pool note
-- KEYS   [1] a marker (string, 'word …') or a pool (hash, see lib/pool)
-- ARGV   none
-- Reply  {'noted', place…} | {'none'} it has no word
-- Units  none
-- Effect none
local text = read_note(KEYS[1])
if not text then
  return {'none'}
end
local reply = {'noted'}
for place in pairs(read_places(read_word(text).places)) do
  reply[#reply + 1] = place
end
return reply
