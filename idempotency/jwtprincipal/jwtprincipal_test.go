package jwtprincipal

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/issuer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// by is a request with Authorization headers.
func by(t testing.TB, values ...string) *http.Request {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", http.NoBody)
	for _, value := range values {
		r.Header.Add("Authorization", value)
	}
	return r
}

func open(t testing.TB, config Config) *Verifier {
	t.Helper()
	v, err := New(config)
	expect.Error(t, "New", err, nil)
	return v
}

// principal is the caller of a token, which has to verify.
func principal(t testing.TB, v *Verifier, token string) string {
	t.Helper()
	who, err := v.Principal(by(t, "Bearer "+token))
	expect.Error(t, "the principal of a token", err, nil)
	if who == "" || strings.Contains(token, who) {
		t.Errorf("the principal is %q, want a name that is no part of the token", who)
	}
	return who
}

func wantRefused(t testing.TB, what string, v *Verifier, why string, values ...string) {
	t.Helper()
	who, err := v.Principal(by(t, values...))
	expect.Error(t, what, err, idempotency.ErrUnauthorized)
	expect.Equal(t, what+": the principal", who, "")
	if err != nil {
		expect.Contains(t, what, err.Error(), why)
		for _, value := range values {
			if _, token, _ := strings.Cut(value, " "); len(token) > 20 && strings.Contains(err.Error(), token[:20]) {
				t.Errorf("%s: the error holds the token", what)
			}
		}
	}
}

func TestRenewedTokenIsTheSameCaller(t *testing.T) {
	t.Parallel()
	is := issuer.New(t)
	v := open(t, Config{JWKS: is.URL, Issuers: []string{"https://id.example/"}, Audience: "payments"})
	ann := principal(t, v, is.Token("ann"))
	for name, row := range map[string]struct {
		token string
		same  bool
	}{
		"a renewed token":     {is.Token("ann"), true},
		"with other claims":   {is.Token("ann", map[string]any{"scope": "pay", "aud": []string{"x", "payments"}}), true},
		"without an end":      {is.Token("ann", map[string]any{"exp": nil, "iat": nil}), true},
		"another caller":      {is.Token("bob"), false},
		"a number":            {is.Token("7"), false},
		"as long as a name":   {is.Token(strings.Repeat("ann", 1000)), false},
		"small letters count": {is.Token("Ann"), false},
	} {
		expect.Equal(t, name+" is ann", principal(t, v, row.token) == ann, row.same)
	}
	again, err := v.Principal(by(t, "bearer   "+is.Token("ann")))
	expect.Error(t, "the scheme in small letters, and three spaces", err, nil)
	expect.Equal(t, "the scheme in small letters, and three spaces", again, ann)
	expect.Equal(t, "how often the key set was asked for", is.Asked.Load(), 1)
}

// Callers of two issuers never meet, nor does a caller by one claim meet one by another.
func TestCallerIsOneOfItsIssuerByItsClaim(t *testing.T) {
	t.Parallel()
	is := issuer.New(t)
	anyIssuer, byID := open(t, Config{JWKS: is.URL}), open(t, Config{JWKS: is.URL, Claim: "user_id"})
	seen := map[string]string{}
	for name, who := range map[string]string{
		"ann":                    principal(t, anyIssuer, is.Token("ann")),
		"ann of another issuer":  principal(t, anyIssuer, is.Token("ann", map[string]any{"iss": "https://other.example/"})),
		"ann of no issuer":       principal(t, anyIssuer, is.Token("ann", map[string]any{"iss": nil})),
		"by the claim user_id":   principal(t, byID, is.Token("x", map[string]any{"user_id": "ann"})),
		"the number 7":           principal(t, byID, is.Token("x", map[string]any{"user_id": 7})),
		"the text 7":             principal(t, byID, is.Token("x", map[string]any{"user_id": "7"})),
		"a number of 19 digits":  principal(t, byID, is.Token("x", map[string]any{"user_id": int64(9007199254740993)})),
		"the next of 19 digits":  principal(t, byID, is.Token("x", map[string]any{"user_id": int64(9007199254740992)})),
		"the sub that is 7":      principal(t, anyIssuer, is.Token("", map[string]any{"sub": 7})),
		"the sub with a text 7":  principal(t, anyIssuer, is.Token("7")),
		"a jti that is a number": principal(t, anyIssuer, is.Token("jim", map[string]any{"jti": 7})),
		"a number below nothing": principal(t, byID, is.Token("x", map[string]any{"user_id": -7})),
	} {
		if other, met := seen[who]; met {
			t.Errorf("%s and %s are one caller", name, other)
		}
		seen[who] = name
	}
	for name, value := range map[string]any{"no claim": nil, "an empty text": "", "a list": []string{"ann"}, "a map": map[string]any{"a": 1}, "true": true, "1.5": 1.5,
		"half of a surrogate pair": json.RawMessage(`"ann\ud83d"`)} {
		wantRefused(t, name, byID, "no claim user_id", "Bearer "+is.Token("ann", map[string]any{"user_id": value}))
	}
	wantRefused(t, "an issuer of half a surrogate pair", anyIssuer, "its iss is no text", "Bearer "+is.Token("ann", map[string]any{"iss": json.RawMessage(`"\udc00"`)}))
	wantRefused(t, "an issuer that is no text", anyIssuer, "cannot be read", "Bearer "+is.Token("ann", map[string]any{"iss": 1}))
}

func TestPrincipalsOfTokensAreFixed(t *testing.T) {
	t.Parallel()
	is := issuer.New(t)
	v := open(t, Config{JWKS: is.URL, Claim: "user_id"})
	of := func(value any) string {
		return principal(t, v, is.Token("x", map[string]any{"iss": "https://id.example/", "user_id": value}))
	}
	expect.SameName(t, names.Version, "the principal by a text", of("7"), "Z812e1rvchnVFQb5yRUEFCrgJmf_TIqB")
	expect.SameName(t, names.Version, "the principal by a number", of(7), "zN9fZTDaPeAQ7y9e28PAwtImk7U4oNBV")
}

func TestTokenThatDoesNotVerifyIsRefused(t *testing.T) {
	t.Parallel()
	is, other := issuer.New(t), issuer.New(t)
	v := open(t, Config{JWKS: is.URL, Issuers: []string{"https://id.example/"}, Audience: "payments"})
	good, now := is.Token("ann"), time.Now()
	parts := strings.Split(good, ".")
	claims := func(more map[string]any) string { return "Bearer " + is.Token("ann", more) }
	encoded := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for name, row := range map[string]struct{ value, why string }{
		"another scheme":             {"Basic YTpi", "one bearer token"},
		"no token":                   {"Bearer", "no signed token"},
		"an opaque token":            {"Bearer 0123456789abcdef", "no signed token"},
		"a forged one":               {"Bearer " + other.Token("ann"), "not signed with a key"},
		"another payload":            {"Bearer " + parts[0] + "." + encoded(`{"iss":"https://id.example/","sub":"bob","aud":"payments"}`) + "." + parts[2], "not signed with a key"},
		"no signature":               {"Bearer " + parts[0] + "." + parts[1] + ".", "not signed with a key"},
		"alg none":                   {"Bearer " + encoded(`{"alg":"none"}`) + "." + parts[1] + ".", "no signed token"},
		"alg None":                   {"Bearer " + encoded(`{"alg":"None"}`) + "." + parts[1] + "." + parts[2], "no signed token"},
		"a critical header":          {"Bearer " + encoded(`{"alg":"ES256","kid":"k1","crit":["x"],"x":1}`) + "." + parts[1] + "." + parts[2], "not signed with a key"},
		"expired":                    {claims(map[string]any{"exp": now.Add(-time.Minute).Unix()}), "expired"},
		"not valid yet":              {claims(map[string]any{"nbf": now.Add(time.Hour).Unix()}), "not valid yet"},
		"issued in the future":       {claims(map[string]any{"iat": now.Add(time.Hour).Unix()}), "in the future"},
		"of another issuer":          {claims(map[string]any{"iss": "https://other.example/"}), "another issuer"},
		"of an issuer that contains": {claims(map[string]any{"iss": "https://id.example/x"}), "another issuer"},
		"of no issuer":               {claims(map[string]any{"iss": nil}), "another issuer"},
		"for another audience":       {claims(map[string]any{"aud": "shop"}), "another audience"},
		"for no audience":            {claims(map[string]any{"aud": nil}), "another audience"},
		"an end that is a text":      {claims(map[string]any{"exp": "tomorrow"}), "cannot be read"},
	} {
		wantRefused(t, name, v, row.why, row.value)
	}
	wantRefused(t, "no header", v, "no bearer token")
	wantRefused(t, "two tokens", v, "one bearer token", "Bearer "+good, "Bearer "+good)
	// clocks differ
	principal(t, v, is.Token("ann", map[string]any{"exp": now.Add(-10 * time.Second).Unix()}))
	wantRefused(t, "expired, with less leeway", open(t, Config{JWKS: is.URL, Leeway: time.Second}), "expired",
		claims(map[string]any{"exp": now.Add(-10 * time.Second).Unix()}))
}

// The public key is known to all: as the secret of an HMAC it proves nothing. Nor is a secret in a
// key set one that verifies.
func TestAlgorithmIsTheOneOfTheKey(t *testing.T) {
	t.Parallel()
	secret, err := rsa.GenerateKey(rand.Reader, 2048)
	expect.Error(t, "making a key", err, nil)
	shared := []byte("0123456789abcdef0123456789abcdef")
	path := keyFile(t, jose.JSONWebKey{Key: &secret.PublicKey, KeyID: "r", Algorithm: "RS256"}, jose.JSONWebKey{Key: shared, KeyID: "s", Algorithm: "HS256"})
	v := open(t, Config{JWKS: path})
	principal(t, v, issuer.Sign(t, secret, "RS256", "r", "ann"))
	der, err := x509.MarshalPKIXPublicKey(&secret.PublicKey)
	expect.Error(t, "writing the public key", err, nil)
	for name, known := range map[string][]byte{"DER": der, "PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "PKCS 1": x509.MarshalPKCS1PublicKey(&secret.PublicKey)} {
		wantRefused(t, "HS256 with the public key as "+name, v, "its alg", "Bearer "+issuer.Sign(t, known, "HS256", "r", "ann"))
	}
	wantRefused(t, "HS256 with a secret of the key set", v, "its alg", "Bearer "+issuer.Sign(t, shared, "HS256", "s", "ann"))
	wantRefused(t, "PS256 with a key for RS256", v, "not signed", "Bearer "+issuer.Sign(t, secret, "PS256", "r", "ann"))
	wantRefused(t, "RS256 where ES256 is pinned", open(t, Config{JWKS: path, Algorithms: []string{"ES256"}}), "its alg", "Bearer "+issuer.Sign(t, secret, "RS256", "r", "ann"))
}

// keyFile is a key set in a file.
func keyFile(t testing.TB, keys ...jose.JSONWebKey) string {
	t.Helper()
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	expect.Error(t, "writing a key set", err, nil)
	path := filepath.Join(t.TempDir(), "jwks.json")
	expect.Error(t, "writing a key set", os.WriteFile(path, text, 0o600), nil)
	return path
}

// A token need not name its key, and a set may hold keys that nothing here can use.
func TestKeySetsAsTheyAre(t *testing.T) {
	t.Parallel()
	public, secret, err := ed25519.GenerateKey(rand.Reader)
	expect.Error(t, "making a key", err, nil)
	old, oldSecret, err := ed25519.GenerateKey(rand.Reader)
	expect.Error(t, "making a key", err, nil)
	path := keyFile(t, jose.JSONWebKey{Key: old, KeyID: "old"}, jose.JSONWebKey{Key: public, KeyID: "new", Algorithm: "EdDSA", Use: "sig"}, jose.JSONWebKey{Key: old, KeyID: "enc", Use: "enc"})
	text, err := os.ReadFile(path)
	expect.Error(t, "reading the key set", err, nil)
	odd := strings.Replace(string(text), `"keys":[`, `"keys":[{"kty":"XYZ","kid":"a"},{"kty":"EC","crv":"secp256k1","kid":"b"},{"kid":"c"},7,`, 1)
	expect.Error(t, "writing the key set", os.WriteFile(path, []byte(odd), 0o600), nil)
	v := open(t, Config{JWKS: path})
	ann := principal(t, v, issuer.Sign(t, secret, "EdDSA", "new", "ann"))
	expect.Equal(t, "without an id", principal(t, v, issuer.Sign(t, secret, "EdDSA", "", "ann")), ann)
	expect.Equal(t, "of the old key", principal(t, v, issuer.Sign(t, oldSecret, "EdDSA", "old", "ann")), ann)
	wantRefused(t, "of a key that encrypts", v, "not signed", "Bearer "+issuer.Sign(t, oldSecret, "EdDSA", "enc", "ann"))
	wantRefused(t, "of a key under another's id", v, "not signed", "Bearer "+issuer.Sign(t, oldSecret, "EdDSA", "new", "ann"))
}

func TestConfigWithFaultsIsRefused(t *testing.T) {
	t.Parallel()
	empty, none := filepath.Join(t.TempDir(), "empty"), keyFile(t, jose.JSONWebKey{Key: []byte("0123456789abcdef"), KeyID: "s"})
	expect.Error(t, "writing a file", os.WriteFile(empty, []byte("{}"), 0o600), nil)
	for want, config := range map[string]Config{
		"jwks: missing": {},
		"jwks: not a URL such as https://id.example/.well-known/jwks.json": {JWKS: "ftp://id.example/keys"},
		"without a password":   {JWKS: "https://user:secret@id.example/keys"},
		"leeway: up to 5m0s":   {JWKS: "https://id.example/keys", Leeway: time.Hour},
		"algorithms: at least": {JWKS: "https://id.example/keys", Algorithms: []string{}},
		`algorithms: "HS256"`:  {JWKS: "https://id.example/keys", Algorithms: []string{"RS256", "HS256"}},
		`algorithms: "none"`:   {JWKS: "https://id.example/keys", Algorithms: []string{"none"}},
		"no such file":         {JWKS: filepath.Join(t.TempDir(), "none")},
		"not a key set":        {JWKS: empty},
		"it has no public key": {JWKS: none},
		"a key set has up to":  {JWKS: "/dev/zero"},
		"cannot be read":       {JWKS: t.TempDir()},
	} {
		_, err := New(config)
		if err == nil {
			t.Errorf("New: got no error, want %q", want)
			continue
		}
		expect.Contains(t, "New", err.Error(), want)
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error holds a password: %v", err)
		}
	}
}
