package names

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
)

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
