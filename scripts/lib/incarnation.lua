-- incarnation: one life of this server's state. master_replid changes when another server becomes master or when a server starts without its data.
local function incarnation()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
end
