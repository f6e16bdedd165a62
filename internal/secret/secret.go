// Package secret makes the random strings that prove something: tokens, lease owners, nonces. Its
// bearer owns what it proves; none may be logged.
package secret

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

var form = lazyregexp.New(`^[A-Za-z0-9_-]{22}$`)

// New returns 128 random bits as 22 characters of base64url, which need no escaping in a path, a
// query or a header. None begins with a dash, as a flag does. It is safe for concurrent use.
func New() string {
	var bits [16]byte
	for {
		_, _ = rand.Read(bits[:]) // never fails: it ends the program instead
		if text := base64.RawURLEncoding.EncodeToString(bits[:]); text[0] != '-' {
			return text
		}
	}
}

// Valid reports whether a text can have come from New.
func Valid(text string) bool { return form().MatchString(text) }
