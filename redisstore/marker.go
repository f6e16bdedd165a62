package redisstore

import "github.com/coatcheck/coatcheck/internal/redisconn"

// Marker returns the key beside all records of one kind in the slot of a name: one for the whole
// store, in a cluster one for each slot. It holds what all of them share, such as the incarnation
// that wrote them. There must not be one for each name, since it cannot expire.
func (s *Store) Marker(kind, name string) string { return s.SlotKey(kind, "marker", name) }

// SlotKey returns the key of a part that all records of one kind in the slot of a name share: one
// key for the whole store, in a cluster one for each slot, so that a script may take it together
// with the name's record.
func (s *Store) SlotKey(kind, part, name string) string {
	if s.mode != Cluster {
		return s.Key(kind, part)
	}
	return s.Key(kind, redisconn.SlotTags()[redisconn.Slot(name)], part)
}

// SlotKeys returns every key that SlotKey can return for a part: one, or in a cluster 16,384.
func (s *Store) SlotKeys(kind, part string) []string {
	if s.mode != Cluster {
		return []string{s.Key(kind, part)}
	}
	keys := make([]string, 0, redisconn.Slots)
	for _, tag := range redisconn.SlotTags() {
		keys = append(keys, s.Key(kind, tag, part))
	}
	return keys
}
