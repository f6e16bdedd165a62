-- incarnation: identifies one incarnation of this server's state. master_replid, 40 hex digits,
-- changes when another server becomes master or when a server starts without its data. Callers name
-- the incarnation that is noted in their state, which counts where restarts are trusted
-- (lib/trusted).
local function incarnation()
  local info = redis.call('INFO', 'replication')
  local _, before = string.find(info, 'master_replid:', 1, true)
  return before and string.sub(info, before + 1, before + 40) or ''
end
