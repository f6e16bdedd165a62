// Package issuer is an issuer of bearer tokens (JWT) for tests, with its key set behind a URL.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// Issuer signs tokens with its newest key.
type Issuer struct {
	t     testing.TB
	URL   string // of the key set
	Asked atomic.Int64
	Away  atomic.Bool // the key set is answered 500

	mu   sync.Mutex
	keys []jose.JSONWebKey // with their secrets
}

// New starts an issuer that ends with the test. It has one key, "k1".
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	i.Rotate("k1")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if i.Asked.Add(1); i.Away.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(i.KeySet())
	}))
	t.Cleanup(web.Close)
	i.URL = web.URL + "/jwks.json"
	return i
}

// Rotate makes a new key, which takes the place of those before it.
func (i *Issuer) Rotate(id string) {
	i.t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatalf("making a key: %v", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = []jose.JSONWebKey{{Key: secret, KeyID: id, Algorithm: "ES256", Use: "sig"}}
}

// KeySet is the public key set, as JSON.
func (i *Issuer) KeySet() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, key := range i.keys {
		set.Keys = append(set.Keys, key.Public())
	}
	text, err := json.Marshal(set)
	if err != nil {
		i.t.Errorf("writing the key set: %v", err)
	}
	return text
}

// File writes the key set into a file, and returns its path.
func (i *Issuer) File() string {
	i.t.Helper()
	path := filepath.Join(i.t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, i.KeySet(), 0o600); err != nil {
		i.t.Fatalf("writing the key set: %v", err)
	}
	return path
}

// Token is a new token of a caller: no two are the same text. more replaces or adds claims; nil
// leaves one out.
func (i *Issuer) Token(caller string, more ...map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	return Sign(i.t, i.keys[0].Key, "ES256", i.keys[0].KeyID, caller, more...)
}

// Sign is such a token, signed with another key.
func Sign(t testing.TB, key any, algorithm, id, caller string, more ...map[string]any) string {
	t.Helper()
	now := time.Now()
	claims := map[string]any{
		"iss": "https://id.example/", "sub": caller, "aud": "payments",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(), "jti": rand.Text(),
	}
	for _, one := range more {
		maps.Copy(claims, one)
	}
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(algorithm), Key: key}, options)
	if err != nil {
		t.Fatalf("signing with %s: %v", algorithm, err)
	}
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatalf("signing with %s: %v", algorithm, err)
	}
	return token
}
