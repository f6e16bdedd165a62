package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
)

// Secret is a secret of a service under an id, so that keys can be changed: give each process the
// new one as the last of its list, since it refuses what others make with a key that it does not
// have; then as the first; and remove the old one when nothing that it was used for is needed any
// more.
type Secret struct {
	// 1 to 16 characters of A–Z a–z 0–9 _ -, no dash in front; it stands beside what the key made
	ID    string
	Value []byte // 32 bytes
}

const keyLength = 32

var keyID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,15}$`)

// ParseSecrets reads keys from a setting: id:secret, the secret in base64, separated by commas, the
// newest first. "" is no keys. The error has every fault, and nothing of a secret.
func ParseSecrets(text string) ([]Secret, error) {
	if text == "" {
		return nil, nil
	}
	var keys []Secret
	var faults []error
	for i, part := range strings.Split(text, ",") {
		id, secret, _ := strings.Cut(strings.TrimSpace(part), ":")
		bytes, err := base64.StdEncoding.DecodeString(secret)
		if err != nil {
			bytes, err = base64.RawURLEncoding.DecodeString(secret)
		}
		if err != nil || !keyID().MatchString(id) {
			faults = append(faults, fmt.Errorf("key %d: id:secret, the id 1 to 16 characters of A–Z a–z 0–9 _ -, no dash in front, the "+
				"secret base64 of %d bytes", i+1, keyLength))
			continue
		}
		keys = append(keys, Secret{ID: id, Value: bytes})
	}
	if err := errors.Join(append(faults, checkKeys(keys))...); err != nil {
		return nil, err
	}
	return keys, nil
}

func checkKeys(keys []Secret) error {
	var faults []error
	seen := map[string]bool{}
	for i, key := range keys {
		switch {
		case !keyID().MatchString(key.ID):
			faults = append(faults, fmt.Errorf("key %d: an id has 1 to 16 characters of A–Z a–z 0–9 _ -, no dash in front", i+1))
		case len(key.Value) != keyLength:
			faults = append(faults, fmt.Errorf("key %q: a secret has %d bytes, not %d", key.ID, keyLength, len(key.Value)))
		case seen[key.ID]:
			faults = append(faults, fmt.Errorf("key %q: given twice", key.ID))
		}
		seen[key.ID] = true
	}
	return errors.Join(faults...)
}

// ring signs tokens. The zero value signs nothing and accepts everything.
type ring []Secret

func newRing(keys []Secret) ring {
	if err := checkKeys(keys); err != nil {
		panic(fmt.Errorf("idempotency: token keys: %w", err))
	}
	return keys
}

// sign makes a token of a random text: id.random.mac, where mac is HMAC-SHA-256 (RFC 2104) over id,
// random and principal, cut to 128 bits. Neither a scope nor a time is part of it: those are in the
// token's record, without which no token is valid, and a recorded answer outlives the time to
// claim.
func (r ring) sign(principal, random string) string {
	if len(r) == 0 {
		return random
	}
	return r[0].ID + "." + random + "." + mac(r[0], principal, random)
}

// verify reports whether a token was signed with one of the keys, for that principal.
func (r ring) verify(principal, token string) bool {
	if len(r) == 0 {
		return true
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	for _, key := range r {
		if key.ID == parts[0] {
			return hmac.Equal([]byte(mac(key, principal, parts[1])), []byte(parts[2]))
		}
	}
	return false
}

func mac(key Secret, principal, random string) string {
	sum := hmac.New(sha256.New, key.Value)
	for _, part := range []string{"coatcheck token", key.ID, random, principal} {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}
