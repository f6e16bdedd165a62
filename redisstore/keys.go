package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// DefaultPrefix begins every key unless the configuration says otherwise.
const DefaultPrefix = "coatcheck:"

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

// Digest names a record by 192 bits of a SHA-256 over the parts, as 32 characters of base64url:
// parts of any length and content make a short name, two different lists of parts never make the
// same one, and none of the parts can be read in Redis.
func Digest(parts ...string) string {
	var space [256]byte // on the stack, for parts of the usual length
	text := space[:0]
	for _, part := range parts { // a netstring each
		text = append(strconv.AppendInt(text, int64(len(part)), 10), ':')
		text = append(append(text, part...), ',')
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:24])
}
