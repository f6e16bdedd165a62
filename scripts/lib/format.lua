-- format: which format a record has. One of a newer format than 1 begins with a word that says so,
-- and from which version of coatcheck on it is read, such as '@2:1.1.0'. A token's record has the
-- word before its state, a pool before its head, a lock before its last grant. refuse_newer ends
-- the script if this version does not know the format of a kind of record, with the error 'NEWER
-- kind format known version'. Scripts call it before they write anything.
local function refuse_newer(kind, text)
  if not text or string.byte(text, 1) ~= 64 then -- '@'
    return
  end
  local known = {token = 1, counter = 1, marker = 1, pool = 1, lock = 1, key = 1, limit = 1}
  local found, version = string.match(text, '^@(%d+):([%w.+-]+)')
  if not found or tonumber(found) > known[kind] then
    error(table.concat({'NEWER', kind, found or '?', known[kind], version or '?'}, ' '), 0)
  end
end
