-- lock_names: a page of the names that lock_note keeps, by the end of the lease.
-- Uses   clock integer page
-- KEYS   [1] the list (sorted set, names by the end of the lease)
-- ARGV   [1] the end and [2] the name after which the page begins, '0' and '' for the first page
--        [3] the largest number of names
-- Reply  {'ok', name, end…}, two values for each; a name that is noted again comes again
-- Units  times in milliseconds since 1970 of this server
-- Effect none
local from = ARGV[1]
if tonumber(from) <= now then
  from = integer(now + 1) -- what has ended is not read
end
return page_after({'ok'}, KEYS[1], from, ARGV[2], '+inf', tonumber(ARGV[3]))
