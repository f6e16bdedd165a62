-- lock_marker: reads the marker of lost state, where a call has one, and refuses one of a newer
-- format, as lib/lock_format does.
local loss_marker = KEYS[6] and redis.call('GET', KEYS[6])
refuse_newer('marker', loss_marker)
