-- pool: the head of a worker-id pool. The pool is a hash: its field 'pool' is the head, and every
-- worker id that was ever granted has a field 's:<worker id>' (lib/slot). The head is one text,
-- 'layout epoch datacenter bits ttl records next fence incarnation quarantine longest', with '-'
-- for an empty word and 0 for a missing number. It is one field because each field that a script
-- reads or writes costs the server time. layout, epoch, datacenter, bits, ttl: the pool's shape and
-- window; layout is '' until the first grant fixes them. records: the number of slot records.
-- next: every id below it was granted at some time. fence: the last one. incarnation: that of the
-- server that wrote last. quarantine: until when nothing is granted. longest: the longest ttl that
-- any process using the pool allows; 0: not known.
local function full(word)
  return word == '-' and '' or word
end

local function dash(word)
  return word == '' and '-' or word
end

-- read_head returns the head of a pool, and refuses one of a newer format.
local function read_head(key)
  local head = redis.call('HGET', key, 'pool')
  refuse_newer('pool', head)
  return head
end

local head_form = '^(%S+) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+)$'

-- read_pool returns the stored part of a pool with that head, which may be empty, and reports
-- whether it is complete, and whether it is entirely missing. A head that cannot be read counts as
-- missing.
local function read_pool(key, head)
  local slots = redis.call('HLEN', key) - (head and 1 or 0)
  local layout, epoch, datacenter, bits, ttl, records, next_id, fence, life, quarantine, longest = string.match(head or '', head_form)
  if not layout then
    local nothing = {layout = '', epoch = '', datacenter = '', bits = '0', ttl = 0, records = slots, next = 0, fence = '0', incarnation = '', quarantine = 0, longest = 0}
    return nothing, false, not head and slots == 0
  end
  local pool = {
    layout = full(layout), epoch = full(epoch), datacenter = full(datacenter), bits = bits, ttl = tonumber(ttl), records = slots, next = tonumber(next_id),
    fence = fence, incarnation = full(life), quarantine = tonumber(quarantine), longest = tonumber(longest),
  }
  return pool, tonumber(records) == slots, false
end

-- ends_of is the first millisecond since 1970 that no id of a layout can have: its first number is
-- the width of its timestamps, which count seconds with '@s'.
local function ends_of(shape)
  local width = tonumber(string.match(shape.layout, '^%d+'))
  local unit = string.find(shape.layout, '@s', 1, true) and 1000 or 1
  return width and tonumber(shape.epoch) + unit * 2 ^ width or math.huge
end

local function head_of(pool)
  return string.format('%s %s %s %s %.0f %.0f %.0f %s %s %.0f %.0f', dash(pool.layout), dash(pool.epoch), dash(pool.datacenter), pool.bits, pool.ttl, pool.records, pool.next,
    pool.fence, dash(pool.incarnation), pool.quarantine, pool.longest)
end
