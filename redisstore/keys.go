package redisstore

import (
	"fmt"
	"strings"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/redisconn"
)

// defaultPrefix begins every key unless the configuration says otherwise.
const defaultPrefix = "coatcheck:"

var prefixForm = lazyregexp.New(`^[A-Za-z0-9._:~@-]*$`)

// checkPrefix refuses a prefix that could break the hash tag after it.
func checkPrefix(prefix string) error {
	if len(prefix) > 100 || !prefixForm().MatchString(prefix) {
		return fmt.Errorf("prefix %q: up to 100 characters of A–Z a–z 0–9 . _ : ~ @ -", prefix)
	}
	return nil
}

// Key returns the name of a record: prefix, kind, the name in braces, and parts after it, such as
// coatcheck:worker:{orders}:ends. Only the name is in braces, so that all records of one name live
// in one slot of a cluster. The name must hold no brace.
func (s *Store) Key(kind, name string, parts ...string) string {
	key := s.prefix + kind + ":{" + name + "}"
	if len(parts) > 0 {
		key += ":" + strings.Join(parts, ":")
	}
	return key
}

// SlotKey returns the key of a part that all records of one kind in the slot of a name share, such
// as the marker of the incarnation that wrote them: one key for the whole store, in a cluster one
// for each slot, so that a script may take it together with the name's record. There must not be
// one for each name, where it cannot expire.
func (s *Store) SlotKey(kind, part, name string) string {
	if s.mode != ModeCluster {
		return s.Key(kind, part)
	}
	return s.Key(kind, redisconn.SlotTags()[redisconn.Slot(name)], part)
}

// SlotKeys returns every key that SlotKey can return for a part: one, or in a cluster 16,384.
func (s *Store) SlotKeys(kind, part string) []string {
	if s.mode != ModeCluster {
		return []string{s.Key(kind, part)}
	}
	keys := make([]string, 0, redisconn.Slots)
	for _, tag := range redisconn.SlotTags() {
		keys = append(keys, s.Key(kind, tag, part))
	}
	return keys
}
