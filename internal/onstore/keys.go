package onstore

import (
	"strings"

	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Key returns the name of a record: prefix, kind, the name in braces, and parts after it, such as
// coatcheck:worker:{orders}:ends. Only the name is in braces, so that all records of one name live
// in one slot of a cluster. The name must hold no brace.
func Key(store *redisstore.Store, kind, name string, parts ...string) string {
	key := store.Prefix() + kind + ":{" + name + "}"
	if len(parts) > 0 {
		key += ":" + strings.Join(parts, ":")
	}
	return key
}

// SlotKey returns the key of a part that all records of one kind in the slot of a name share, such
// as the marker of the incarnation that wrote them: one key for the whole store, in a cluster one
// for each slot, so that a script may take it together with the name's record. There must not be
// one for each name, where it cannot expire.
func SlotKey(store *redisstore.Store, kind, part, name string) string {
	if store.Mode() != redisstore.ModeCluster {
		return Key(store, kind, part)
	}
	return Key(store, kind, redisconn.SlotTags()[redisconn.Slot(name)], part)
}

// SlotKeys returns every key that SlotKey can return for a part: one, or in a cluster 16,384.
func SlotKeys(store *redisstore.Store, kind, part string) []string {
	if store.Mode() != redisstore.ModeCluster {
		return []string{Key(store, kind, part)}
	}
	keys := make([]string, 0, redisconn.Slots)
	for _, tag := range redisconn.SlotTags() {
		keys = append(keys, Key(store, kind, tag, part))
	}
	return keys
}
