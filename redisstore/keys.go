package redisstore

import (
	"fmt"
	"regexp"
	"strings"
)

// defaultPrefix begins every key unless the configuration says otherwise.
const defaultPrefix = "coatcheck:"

var prefixForm = regexp.MustCompile(`^[A-Za-z0-9._:~@-]{0,100}$`)

// checkPrefix refuses a prefix that could break the hash tag after it.
func checkPrefix(prefix string) error {
	if !prefixForm.MatchString(prefix) {
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
