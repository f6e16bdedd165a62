-- incarnation: identifies one incarnation of this server's state. master_replid, 40 hex digits,
-- changes when another server becomes master or when a server starts without its data.
local function incarnation()
  local info = redis.call('INFO', 'replication')
  local _, before = string.find(info, 'master_replid:', 1, true)
  return before and string.sub(info, before + 1, before + 40) or ''
end
