-- operation_list: a page of the operations in doubt, the longest in doubt first.
-- Uses   clock integer page
-- KEYS   [1] the operations under way (sorted set, by the end of the attempt's lease)
-- ARGV   [1] the end and [2] the operation after which the page begins, '0' and '' for the first
--        page  [3] the largest number of operations
-- Reply  {'ok', operation, in doubt since…}, two values for each
-- Units  times in milliseconds since 1970 of this server
-- Effect none
return page_after({'ok'}, KEYS[1], ARGV[1], ARGV[2], now_text, tonumber(ARGV[3]))
