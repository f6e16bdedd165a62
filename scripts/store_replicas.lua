-- store_replicas: notes which replicas a server without a list of them has had, by their addresses,
-- and tells which have to confirm so that all have what is confirmed: a process that starts while
-- one is away sees only the others. The key is 'id run promoted address…': the server that noted
-- it, by master_replid and run_id, and '+' if another one has become master since, which is one of
-- the addresses, else '-'. When one alone is not attached, that is the master, and it is taken off.
-- An address stands there as often as replicas were attached behind it at once.
-- Uses   format
-- KEYS   [1] the replicas (string)
-- ARGV   [1] master_replid  [2] master_replid2 of a server that has followed that in this run, else
--        '-': one that has started from a file may show it, too  [3] run_id  [4] this server's
--        address, '-' where it is not known  [5] the addresses that are attached, or were seen
--        attached and may not be noted yet, with a blank between them
-- Reply  {'ok', address…} those that have to confirm
-- Units  none
-- Effect writes on ok; a repeat writes the same
local function words_of(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do
    words[#words + 1] = word
  end
  return words
end

local text = redis.call('GET', KEYS[1])
refuse_newer('replicas', text)
local words, now = words_of(text or ''), words_of(ARGV[5])
local id, run, promoted = words[1], words[2], words[3] == '+'
local another = id and id ~= ARGV[1] and run ~= ARGV[3]

local listed, held, own = {}, {}, false
local function add(address)
  listed[address] = (listed[address] or 0) + 1
  held[#held + 1] = address
end
for i = 4, #words do
  if another and not own and words[i] == ARGV[4] then
    own = true
  else
    add(words[i])
  end
end
if another and id == ARGV[2] then
  promoted = not own
end
local attached = {}
for _, address in ipairs(now) do
  attached[address] = (attached[address] or 0) + 1
  if attached[address] > (listed[address] or 0) then
    add(address)
  end
end

local away = {}
for i, address in ipairs(held) do
  if (attached[address] or 0) > 0 then
    attached[address] = attached[address] - 1
  else
    away[#away + 1] = i
  end
end
if promoted and #away <= 1 then
  promoted = false
  if away[1] then
    table.remove(held, away[1])
  end
end

text = ARGV[1] .. ' ' .. ARGV[3] .. ' ' .. (promoted and '+' or '-')
for _, address in ipairs(held) do
  text = text .. ' ' .. address
end
redis.call('SET', KEYS[1], text)
local reply = {'ok'}
for _, address in ipairs(held) do
  reply[#reply + 1] = address
end
return reply
