-- words: all words of an operation's record (lib/record), by their names.
local function names()
  return {'state', 'owner', 'until', 'awaited', 'scope', 'keep', 'lease', 'fingerprint', 'policy', 'route', 'request', 'whose', 'asks',
    'fence', 'attempts', 'began', 'claimable', 'settled', 'decision', 'resolver', 'resolve_until', 'asked'}
end

-- words_of returns the words of a record.
local function words_of(text)
  local words, from = {}, 1
  for _, name in ipairs(names()) do
    local tab = string.find(text, '\t', from, true)
    words[name] = string.sub(text, from, tab - 1)
    from = tab + 1
  end
  return words
end

-- record_of is a record with these words and no answer.
local function record_of(words)
  local list = names()
  for i, name in ipairs(list) do
    list[i] = words[name] or ''
  end
  return table.concat(list, '\t') .. '\t\n'
end
