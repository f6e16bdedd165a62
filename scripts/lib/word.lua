-- word: the note of a server and of the durability under which state was written. It stands beside
-- the state, as 'id:run:input:epoch:cover:why:places'.
--
--   id      master_replid, 40 hex digits, or '0' after `store restored`, which never continues
--   run     the first 16 digits of the server's run_id
--   input   total_net_repl_input_bytes: the bytes that this run had read from a master
--   epoch   in a cluster cluster_my_epoch, else empty
--   cover   two digits. 2: every place of the set confirms each write; 1: no replica was attached;
--           0: neither. Then 1 if Redis confirms only what is on disk, else 0. The first digit is
--           the smallest since the word was noted. A 2 stays: all places then have what was
--           confirmed before, and callers that wait for fewer have to wait for all from then on.
--   why     the reason of the last loss: missing (there was no word), restored, restarted,
--           promoted, moved or other
--   places  under a 2 the servers of the set, this one included, in the order of their addresses:
--           'run@host:port,…'. run has all confirmed writes once it has this word. It is empty if
--           it is not known.
local word_form = '^(%x+):(%w*):(%d*):(%d*):(%d)(%d):(%l*):(%S*)$'

-- read_word returns the parts of a word. id is nil if there is no word, or one of another form.
local function read_word(noted)
  local id, run, input, epoch, level, disk, why, places = string.match(noted or '', word_form)
  return {id = id, run = run, input = input, epoch = epoch, level = level or '0', disk = disk, why = why or '', places = places or ''}
end

local function write_word(word)
  return table.concat({word.id, word.run, word.input, word.epoch, word.level .. word.disk, word.why, word.places}, ':')
end

-- because returns a word with another reason.
local function because(text, why)
  local word = read_word(text)
  word.why = why
  return word.id and write_word(word) or text
end

-- read_places returns the runs of a list of places by their addresses.
local function read_places(list)
  local runs = {}
  for run, place in string.gmatch(list, '([^@,]*)@([^,]+)') do
    runs[place] = run
  end
  return runs
end

-- write_places returns a list of places in the order of their addresses.
local function write_places(runs)
  local list = {}
  for place in pairs(runs) do
    list[#list + 1] = place
  end
  table.sort(list)
  for i, place in ipairs(list) do
    list[i] = runs[place] .. '@' .. place
  end
  return table.concat(list, ',')
end

-- why_of is the reason that a word has, 'other' where it has none.
local function why_of(noted)
  local why = read_word(noted).why
  return why ~= '' and why or 'other'
end
