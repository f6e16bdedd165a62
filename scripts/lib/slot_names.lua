-- slot_names: the names of a worker-id slot (lib/slot), in a hash beside the pool: 'n:<nonce>' and,
-- with an identity, 'i:<identity>'. name_slot sets a slot's nonce and identity and removes its
-- earlier ones. Names that belong to another slot by now stay.
local function name_slot(names, id, nonce, identity, old_nonce, old_identity)
  if old_nonce then
    local gone, other = 'n:' .. old_nonce, 'i:' .. old_identity
    local known = redis.call('HMGET', names, gone, other)
    local both = known[2] == id and old_identity ~= identity
    if known[1] == id then
      redis.call('HDEL', names, gone, both and other or gone)
    elseif both then
      redis.call('HDEL', names, other)
    end
  end
  if identity == '' then
    redis.call('HSET', names, 'n:' .. nonce, id)
  else
    redis.call('HSET', names, 'n:' .. nonce, id, 'i:' .. identity, id)
  end
end
