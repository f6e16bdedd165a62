-- incarnation: decides whether the state of this server continues the state in which a word
-- (lib/word) was noted, so that no confirmed write is lost.
--
-- A server believes its own state only if the word names its run. A write counts only when every
-- other place has it. So a wrong name costs a wait or a gap, and a place never leaves by itself.
--
-- The caller's facts are the last of its own arguments of a script that uses this: 'mode disk ack
-- set asked places'. mode: auto | wait (no restart continues) | trust (all state that is there
-- continues, and the server is not asked). disk: 1 if the server confirms only what is on disk.
-- ack: all | some. set: alone | sentinel | cluster. asked: the id of the server that the caller has
-- asked for the rest, '-' for none. places: with ack all the places for which the caller waits, in
-- the form above, this server's first; a run of '-' takes a place off, and one of '+' is of a place
-- that the caller knows from another word: it waits for it, and does not note it here. Else '-'.
local function read_facts(text)
  local mode, disk, ack, set, asked, places = string.match(text, '^(%l+) ([01]) (%l+) (%l+) (%S+) (%S+)$')
  return {mode = mode, disk = disk, all = ack == 'all', set = set, asked = asked, places = places}
end

-- info_field returns a field of a section of INFO, '' where the server does not show it.
local function info_field(section, name)
  local _, before = string.find(section, '\n' .. name .. ':', 1, true)
  return before and string.match(section, '^[^\r\n]*', before + 1) or ''
end

-- section_of is the answer to INFO, '' if it was refused.
local function section_of(answer)
  return type(answer) == 'string' and answer or ''
end

local no_id = string.rep('0', 40)

-- attached_places returns the addresses of the replicas that INFO shows. A replica without a port,
-- such as redis-cli --rdb, cannot become master.
local function attached_places(replication)
  local places = {}
  for host, port in string.gmatch(replication, ':ip=([^,]*),port=([1-9]%d*),') do
    places[#places + 1] = (string.find(host, ':', 1, true) and '[' .. host .. ']' or host) .. ':' .. port
  end
  return places
end

-- union_of returns the places that are noted, waited for or attached, and a list of those for which
-- the caller does not wait.
local function union_of(noted, waited, attached)
  local runs, known, more = read_places(noted), read_places(waited), {}
  for place, run in pairs(known) do
    if run == '-' then
      runs[place] = nil
    elseif run ~= '+' and (run ~= '' or not runs[place]) then
      runs[place] = run
    end
  end
  for _, place in ipairs(attached) do
    runs[place] = runs[place] or ''
  end
  for place, run in pairs(runs) do
    if not known[place] or known[place] == '-' then
      more[#more + 1] = run .. '@' .. place
    end
  end
  return write_places(runs), more
end

-- server_now returns the id of this server by INFO replication, or instead a refusal.
local function server_now(facts, replication)
  if type(replication) ~= 'string' then
    return nil, {'unsuitable', 'INFO is refused inside scripts (' .. tostring(replication.err) .. ')'}
  end
  local role, id = info_field(replication, 'role'), info_field(replication, 'master_replid')
  if role == 'slave' then -- also one that takes writes: it shows the id of its master
    return nil, {err = "READONLY You can't write against a replica."}
  elseif role ~= 'master' and role ~= '' then -- such as active-replica
    return nil, {'unsuitable', 'role is ' .. role}
  end
  if #id ~= 40 or id == no_id or string.find(id, '%X') then
    return nil, {'unsuitable', id == '' and 'INFO replication shows no master_replid' or 'master_replid is ' .. string.sub(id, 1, 50)}
  end
  return id, facts.asked ~= id and {'ask', id} or nil
end

-- with_attached returns a word with the replicas that are attached among its places, nil where it
-- has them, or no places.
local function with_attached(noted, attached)
  local word, more = read_word(noted), false
  local runs = read_places(word.places)
  for _, place in ipairs(attached) do
    if not runs[place] then
      runs[place], more = '', true
    end
  end
  word.places = write_places(runs)
  return more and word.level == '2' and write_word(word) or nil
end

-- is_plain reports whether a word was noted by this server, which is alone and has no replica, and
-- has all that there is to note: the commonest case, in which standing needs no more of INFO.
local function is_plain(noted, facts, replication)
  local id, level, disk = string.match(noted or '', '^(%x+):%w*:%d*::(%d)(%d):%l*:$')
  return id == facts.asked and level == '1' and disk == facts.disk and facts.set == 'alone'
    and string.find(replication, '\nmaster_replid:' .. id .. '\r', 1, true) and string.find(replication, '\nrole:master\r', 1, true)
    and string.find(replication, '\nconnected_slaves:0\r', 1, true)
end

-- standing returns the word to note now, and whether the state continues (same). With a refusal,
-- which is a script's reply, neither is known; a word beside it is to be noted, since no call may
-- be answered before a replica that is attached becomes master. {'unsuitable', fact}: the server
-- cannot show whether it has lost something. {'ask', id}: the caller has asked another server than
-- this. {'all'}: it has to wait for all places. {'places', run@place…}: for these as well.
local function standing(noted, facts)
  if facts.mode == 'trust' then
    local there = (noted or '') ~= '' and not string.find(noted, '^0:')
    return {word = there and noted or 'trusted', same = there, why = read_word(noted).id == '0' and 'restored' or 'missing'}
  end
  local replication = redis.pcall('INFO', 'replication')
  if type(replication) == 'string' and is_plain(noted, facts, replication) then
    return {word = noted, same = true}
  end
  local id, refusal = server_now(facts, replication)
  if not id then
    return {refusal = refusal}
  end
  local was, attached = read_word(noted), attached_places(replication)
  local before, epoch, level = info_field(replication, 'master_replid2'), '', #attached == 0 and '1' or '0'
  -- Of a slot that was moved the places are those of another set.
  local own = facts.set ~= 'cluster' or was.id == id or was.id == before
  local function refused(reply)
    return {refusal = reply, word = own and with_attached(noted, attached) or nil}
  end
  if refusal then
    return refused(refusal)
  end
  if facts.set == 'cluster' then
    epoch = info_field(section_of(redis.pcall('CLUSTER', 'INFO')), 'cluster_my_epoch')
    if epoch == '' then
      return {refusal = {'unsuitable', 'CLUSTER INFO shows no cluster_my_epoch'}}
    end
  end
  if facts.all and facts.set ~= 'alone' then
    level = '2'
  elseif facts.all and level == '0' then
    return {refusal = {'unsuitable', 'a replica is attached, and no list says which there are: --ack with a number, or the URL of Sentinel or the cluster'}}
  end
  if own and was.level == '2' and level ~= '2' then
    return refused({'all'})
  end
  local places = ''
  if level == '2' then
    local more
    places, more = union_of(own and was.places or '', facts.places, attached)
    if #more > 0 then
      return refused({'places', unpack(more)})
    end
  end
  local now = {id = id, run = was.run, input = was.input, epoch = epoch, level = level, disk = facts.disk, why = was.why, places = places}
  if was.level < level and level ~= '2' then
    now.level = was.level
  end
  if was.id == id and was.epoch == epoch then
    return {word = write_word(now), same = true}
  end
  now.run = string.sub(info_field(section_of(redis.pcall('INFO', 'server')), 'run_id'), 1, 16)
  now.input = info_field(section_of(redis.pcall('INFO', 'stats')), 'total_net_repl_input_bytes')

  -- The same process, which has read from no master since, has only renamed its history: for its
  -- first replica, for a backup, or some time after the last one has left.
  local renamed = before == no_id and was.epoch == epoch and was.level ~= '0'
    and now.run ~= '' and now.run == was.run and now.input ~= '' and now.input == was.input
  -- The word names the run that was promoted, or that was to follow another and is master again. In
  -- a cluster a slot may leave a run and come back with less, so no promotion continues there.
  local named = false
  if facts.set == 'sentinel' and before == was.id and now.run ~= '' then
    for _, run in pairs(read_places(was.places)) do
      named = named or run == now.run
    end
  end
  -- A server alone that has started from an append-only file which has all.
  local restarted = facts.set == 'alone' and facts.mode == 'auto' and was.level == '1' and was.disk == '1'
    and facts.disk == '1' and #attached == 0 and before == no_id and now.input == '0' and now.run ~= was.run
  if was.id and (renamed or named or restarted) then
    return {word = write_word(now), same = true}
  end
  now.level = level
  if not was.id then
    now.why = (noted or '') == '' and 'missing' or 'other'
  elseif was.id == '0' then
    now.why = 'restored'
  elseif facts.set == 'cluster' and before ~= was.id then
    now.why = 'moved'
  elseif now.run ~= was.run then
    now.why = now.input == '0' and 'restarted' or 'promoted'
  else
    now.why = 'other'
  end
  return {word = write_word(now), same = false, why = now.why}
end

-- is_same reports whether a word was noted in this incarnation, and has all that there is to note,
-- so that a script may go on without noting anything.
local function is_same(noted, facts)
  local at = standing(noted, facts)
  return not at.refusal and at.same and at.word == noted
end
