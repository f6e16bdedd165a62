package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/coatcheck/coatcheck/internal/names"
)

// Key is an API key, taken apart. It is written cck_<id>_<secret>.
type Key struct {
	ID     string // names the key in records, logs and lists; it is no secret
	Secret string // 43 characters of base64url: 256 random bits
}

const keyStart = "cck_"

var (
	idForm     = names.NewForm("a-z0-9", 1, 32)
	secretForm = names.NewForm("A-Za-z0-9_-", 43, 43)
)

var errKeyForm = errors.New("access: not an API key: cck_<id>_<secret>, the secret of 43 characters")

// NewKey makes a key with a new id and a new secret.
func NewKey() Key {
	var id [5]byte
	var secret [32]byte
	_, _ = rand.Read(id[:]) // it never fails
	_, _ = rand.Read(secret[:])
	return Key{strings.ToLower(base32.StdEncoding.EncodeToString(id[:])), base64.RawURLEncoding.EncodeToString(secret[:])}
}

// ParseKey takes a key apart. The error does not hold it.
func ParseKey(text string) (Key, error) {
	rest, ok := strings.CutPrefix(text, keyStart)
	id, secret, cut := strings.Cut(rest, "_")
	if !ok || !cut || !idForm.MatchString(id) || !secretForm.MatchString(secret) {
		return Key{}, errKeyForm
	}
	return Key{id, secret}, nil
}

// LooksLikeKey reports whether a text begins as keys do.
func LooksLikeKey(text string) bool { return strings.HasPrefix(text, keyStart) }

// Text is the key as it is shown to a service. It is a secret.
func (k Key) Text() string { return keyStart + k.ID + "_" + k.Secret }

// String hides the secret, so that a key printed by mistake gives nothing away.
func (k Key) String() string { return keyStart + k.ID + "_…" }

// GoString hides the secret as well.
func (k Key) GoString() string { return k.String() }

// Hash returns the stored form of the key: the SHA-256 of the secret's characters.
func (k Key) Hash() Hash { return sha256.Sum256([]byte(k.Secret)) }

// Hash is the SHA-256 of a secret. It is written in hex.
type Hash [sha256.Size]byte

// String is the hash in hex.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHash(string(text))
	return err
}

// ParseHash reads a hash.
func ParseHash(text string) (h Hash, err error) {
	if len(text) != hex.EncodedLen(len(h)) {
		return h, errors.New("64 hex digits: the SHA-256 of a secret, as coatcheck key hash prints it")
	}
	if _, err := hex.Decode(h[:], []byte(text)); err != nil || h.String() != text {
		return Hash{}, errors.New("64 hex digits in small letters: the SHA-256 of a secret, as coatcheck key hash prints it")
	}
	return h, nil
}
