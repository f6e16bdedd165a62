-- store_restored: takes in that the server was started from a copy or a backup, beside a word of
-- lib/incarnation. The word says nothing of what came after the copy, so the state counts as
-- possibly lost, once.
-- Uses   format word pool note set_note
-- KEYS   [1] a marker (string, 'word …') or a pool (hash, see lib/pool)
-- ARGV   none
-- Reply  {'marked'} | {'none'} it has no word
-- Units  none
-- Effect writes on marked; a repeat writes the same
local text, beside = read_note(KEYS[1])
if not text then
  return {'none'}
end
local word = read_word(text)
word.id, word.run, word.input, word.epoch, word.disk = '0', '', '', '', word.disk or '0'
word.why = 'restored'
set_note(KEYS[1], write_word(word), beside)
return {'marked'}
