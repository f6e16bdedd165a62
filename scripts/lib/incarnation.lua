-- incarnation: decides whether the state of this server continues the state in which a word was
-- noted, so that nothing that was confirmed is lost. The word is 'id:run:input:cover:why:need'. id
-- is master_replid, 40 hex digits: it changes when another server becomes master, when a server
-- starts, and when a server renames its history. run is the server's run_id, input the bytes that
-- it had read from a master in this run, '' where it does not say. cover is two digits, the least
-- under which anything was confirmed since: 2 every server that can become master had it, 1 no
-- replica was attached, 0 neither; then 1 it was on disk, 0 it may not have been. A caller that
-- confirms by all makes it a 2, since all then have what was confirmed before; likewise one that
-- finds all on disk, since an append-only file has what came before it. A 2 stays, and one that
-- confirms by fewer has to confirm by all there: a replica that lags would show the 2, and lack
-- what was confirmed after it was lowered. why is the reason for which the state does not continue
-- that of before: missing (there was no word: it is new, or lost), restored, restarted, promoted,
-- moved, or other. need is, under a cover of 2 and where no list says it, how many replicas
-- confirmed: a process that has seen fewer attached waits for as many, or what one confirms while a
-- replica is away would be lost with that one's promotion. A word without colons is an id alone,
-- with cover 00; 'trusted' was noted without asking, and 'restored' never continues.
--
-- The caller's facts are the last of its own arguments of a script that uses this: 'mode cover acks
-- set asked peer'. mode: auto | wait (a restart never continues) | trust (all that is there
-- continues, and the server is not asked). cover: as above, as far as the caller knows. acks: how
-- many replicas confirm each write, or all, or 'all<need>' where no list says how many. set: the
-- server is in a cluster | alone. asked: the id for which the caller has asked what a script
-- cannot, '-' for none. peer: the id, asked for just then, under which another master of the
-- cluster lives and which the state may have come from, '-' for none.
local function read_facts(text)
  local mode, level, disk, acks, set, asked, peer = string.match(text, '^(%l+) (%d)(%d) (%w+) (%l+) (%S+) (%S+)$')
  local need = string.match(acks, '^all(%d+)$')
  return {mode = mode, level = level, disk = disk, acks = need and 'all' or acks, need = need, set = set, asked = asked, peer = peer}
end

-- info_field returns a field of a section of INFO, '' where the server does not say it.
local function info_field(section, name)
  local _, before = string.find(section, '\n' .. name .. ':', 1, true)
  return before and string.match(section, '^[^\r\n]*', before + 1) or ''
end

local function read_section(name)
  local section = redis.pcall('INFO', name)
  return type(section) == 'string' and section or ''
end

local no_id = string.rep('0', 40)

local function read_word(noted)
  local id, run, input, level, disk, why, need = string.match(noted or '', '^(%x+):(%w*):(%d*):(%d)(%d):(%l*):?(%d*)$')
  if not id then
    return {id = string.match(noted or '', '^%x+$'), run = '', input = '', level = '0', disk = '0', why = '', need = ''}
  end
  return {id = id, run = run, input = input, level = level, disk = disk, why = why, need = need}
end

local function write_word(word)
  local text = table.concat({word.id, word.run, word.input, word.level .. word.disk, word.why}, ':')
  return word.need ~= '' and text .. ':' .. word.need or text
end

-- because returns a word with another reason.
local function because(text, why)
  local word = read_word(text)
  word.why = why
  return word.id and write_word(word) or text
end

-- need_now is how many replicas have to confirm, for a word with that level. One that was promoted
-- is none of them any more.
local function need_now(was, facts, level, promoted)
  local before = tonumber(was.need)
  if level ~= '2' or not before and not facts.need then
    return ''
  end
  return string.format('%.0f', math.max(promoted and (before or 0) - 1 or before or 0, tonumber(facts.need or 0)))
end

local function smallest(a, b)
  return a < b and a or b
end

-- attached is how many replicas a server has that can become master: one that was started for a
-- copy of the data, such as redis-cli --rdb, has no port.
local function attached(replication)
  local _, count = string.gsub(replication, ',port=[1-9]', '')
  return count
end

-- level_now is the level under which the caller confirms what it does now.
local function level_now(facts, replication)
  local replicas = attached(replication)
  if facts.acks == 'all' or replicas == 0 or facts.level == '2' and replicas <= tonumber(facts.acks) then
    return facts.level
  end
  return '0'
end

-- ran_at reports whether this server ran at a moment, in microseconds since 1970, for certain.
local function ran_at(server, moment)
  local up = tonumber(info_field(server, 'uptime_in_seconds'))
  return moment ~= nil and up ~= nil and tonumber(redis.call('TIME')[1]) - up < moment / 1000000 - 1
end

-- standing returns the word to note now, and whether the state continues (same). With a refusal,
-- which is a script's reply, neither is known: the server has no id that changes with its state
-- ('unsuitable'), or the caller has to ask other servers first ('ask'), or to confirm by every
-- replica ('all'). touched is when the state was written last, in microseconds since 1970, where
-- that is known: a server that ran then has not restarted since, and the state is a copy.
local function standing(noted, facts, touched)
  if facts.mode == 'trust' then
    local there = noted ~= nil and noted ~= false and noted ~= '' and noted ~= 'restored'
    return {word = there and noted or 'trusted', same = there, why = noted == 'restored' and noted or 'missing'}
  end
  local replication = redis.pcall('INFO', 'replication')
  if type(replication) ~= 'string' then
    return {refusal = {'unsuitable', 'INFO is refused inside scripts (' .. tostring(replication.err) .. ')'}}
  end
  local id = info_field(replication, 'master_replid')
  if #id ~= 40 or id == no_id or string.find(id, '%X') then
    return {refusal = {'unsuitable', id == '' and 'INFO replication shows no master_replid' or 'master_replid is ' .. string.sub(id, 1, 50)}}
  end
  local was, level = read_word(noted), level_now(facts, replication)
  local least_level = level == '2' and level or smallest(was.level, level)
  local fewer = facts.need and tonumber(facts.need) < (tonumber(was.need) or 0)
  local more = was.level == '2' and (level ~= '2' or fewer) and {refusal = {'all', id, was.need}}
  if was.id == id then
    if more then
      return more
    end
    local need = need_now(was, facts, least_level)
    if was.level == least_level and was.disk == facts.disk and was.need == need then
      return {word = noted, same = true}
    end
    return {word = write_word({id = id, run = was.run, input = was.input, level = least_level, disk = facts.disk, why = was.why, need = need}), same = true}
  end

  local server = read_section('server')
  local run, input = info_field(server, 'run_id'), info_field(read_section('stats'), 'total_net_repl_input_bytes')
  local function word_now(at, why, need)
    return write_word({id = id, run = run, input = input, level = at, disk = facts.disk, why = why, need = need})
  end
  local function lost(why)
    return {word = word_now(level, why, need_now({need = ''}, facts, level)), same = false, why = why}
  end
  if not was.id then
    return lost((not noted or noted == '') and 'missing' or noted == 'restored' and noted or 'other')
  end
  local before = info_field(replication, 'master_replid2')
  local continued = more or {word = word_now(least_level, was.why, need_now(was, facts, least_level)), same = true}
  -- A server has what it had if it is the same process, and has read from no master since: one that
  -- it followed meanwhile may have lost something, whoever confirmed it here.
  local untouched = run ~= '' and run == was.run and input ~= '' and input == was.input
  -- A master that was to follow another, read nothing from it, and is a master again. Where fewer
  -- confirmed than have to, a replica may have served meanwhile, and this one lack what it did.
  if before == was.id and untouched and was.level ~= '0' then
    return continued
  end
  -- A master that starts from an RDB file shows the id in that file as the one before, and so does
  -- a replica that has started and is promoted before it has read all of its master's data again:
  -- it has read nothing, or it has no backlog, which it gives up when it begins to read all. Redis
  -- 6 does not count what it reads, and has no backlog until it has followed.
  local followed = info_field(replication, 'repl_backlog_active') == '1'
    and (input ~= '' and input ~= '0' or input == '' and string.find(server, '\nredis_version:6.', 1, true))
  if before == was.id then
    if not followed or was.level ~= '2' then
      return lost(followed and 'promoted' or 'restarted')
    end
    local others = need_now(was, facts, level, true)
    if level ~= '2' or tonumber(others) and facts.need and tonumber(facts.need) < tonumber(others) then
      return {refusal = {'all', id, others}}
    end
    return {word = word_now(least_level, was.why, others), same = true}
  end
  if before ~= no_id and facts.set == 'alone' then
    return lost(followed and 'promoted' or 'other')
  end
  if before == no_id and untouched then -- it only renamed its history
    return continued
  end
  -- A server that has started from an append-only file has no id before, and has read from no
  -- master.
  local restarted = before == no_id and facts.mode == 'auto' and run ~= was.run and was.run ~= '' and (input == '0' or input == '')
    and was.level ~= '0' and was.disk == '1' and not ran_at(server, touched)
  if (restarted or facts.set == 'cluster') and facts.asked ~= id then
    return {refusal = {'ask', was.id, id}}
  end
  if restarted and facts.disk == '1' or facts.peer == was.id then
    return continued
  end
  return lost(facts.set == 'cluster' and 'moved' or run ~= was.run and 'restarted' or 'other')
end

-- why_of is the reason that a word has, 'other' where it has none.
local function why_of(noted)
  local why = read_word(noted).why
  return why ~= '' and why or 'other'
end

-- is_same reports whether a word was noted in this incarnation, and says all that there is to note,
-- so that a script may go on without noting anything.
local function is_same(noted, facts)
  local at = standing(noted, facts)
  return not at.refusal and at.same and at.word == noted
end
