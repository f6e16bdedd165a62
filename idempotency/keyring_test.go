package idempotency

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func testKey(id string, fill byte) Secret {
	return Secret{ID: id, Value: bytes.Repeat([]byte{fill}, keyLength)}
}

func TestParseKeysReadsTheNewestFirstInBothAlphabets(t *testing.T) {
	one, two := testKey("2026-11", 0xfb), testKey("old", 2)
	text := one.ID + ":" + base64.StdEncoding.EncodeToString(one.Value) + ", " + two.ID + ":" + base64.RawURLEncoding.EncodeToString(two.Value)
	keys, err := ParseSecrets(text)
	expect.Error(t, "ParseKeys", err, nil)
	expect.Equal(t, "ParseKeys", keys, []Secret{one, two})
	keys, err = ParseSecrets("")
	expect.Error(t, "ParseKeys of nothing", err, nil)
	expect.Equal(t, "ParseKeys of nothing", keys, nil)
}

func TestParseKeysRefusesWithoutSayingTheSecret(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(testKey("x", 7).Value)
	for name, row := range map[string]struct{ text, want string }{
		"no id":     {good, "key 1"},
		"bad id":    {"a b:" + good, "key 1"},
		"dash":      {"-k:" + good, "key 1"},
		"empty id":  {":" + good, "key 1"},
		"long id":   {strings.Repeat("k", 17) + ":" + good, "key 1"},
		"no base64": {"k:hunter2!", "key 1"},
		"short":     {"k:" + base64.StdEncoding.EncodeToString([]byte("hunter2")), "32 bytes, not 7"},
		"twice":     {"k:" + good + ",k:" + good, "twice"},
		"trailing":  {"k:" + good + ",", "key 2"},
	} {
		_, err := ParseSecrets(row.text)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want it to say %q", name, err, row.want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), good)) {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
}

// A token is good for the principal it was issued to, with any key of the ring; whatever else comes
// is unknown, and Redis is not asked.
func TestSignedTokenIsGoodForItsPrincipalOnly(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	with := func(keys ...Secret) *Tokens { return newTokensWith(t, store, Config{TokenKeys: keys}) }
	older, newer := testKey("a", 1), testKey("b", 2)
	token, err := with(older).Issue(t.Context(), "alice", "", 0)
	expect.NoError(t, "issuing a token", err)
	if !names.Token.MatchString(token.Value) || !strings.HasPrefix(token.Value, "a.") {
		t.Fatalf("Issue: got token %q, want one signed with key a", token.Value)
	}
	for name, row := range map[string]struct {
		tokens    *Tokens
		principal string
		token     string
		known     bool
	}{
		"its principal":      {with(older), "alice", token.Value, true},
		"after rotation":     {with(newer, older), "alice", token.Value, true},
		"another principal":  {with(older), "bob", token.Value, false},
		"no principal":       {with(older), "", token.Value, false},
		"without its key":    {with(newer), "alice", token.Value, false},
		"other key, same id": {with(testKey("a", 9)), "alice", token.Value, false},
		"changed":            {with(older), "alice", token.Value[:len(token.Value)-1] + "_", false},
		"cut":                {with(older), "alice", token.Value[:len(token.Value)-1], false},
		"unsigned":           {with(older), "alice", strings.Split(token.Value, ".")[1], false},
		"no keys here":       {with(), "alice", token.Value, true},
		"no keys, other":     {with(), "bob", token.Value, false},
	} {
		_, err := row.tokens.Status(t.Context(), IssuedToken(row.principal, row.token))
		want := ErrUnknownToken
		if row.known {
			want = nil
		}
		expect.Error(t, "Status, "+name, err, want)
	}
}

func TestForgedTokenIsRefusedWithoutAskingRedis(t *testing.T) {
	tokens := newTokensWith(t, closedStore(t), Config{TokenKeys: []Secret{testKey("a", 1)}})
	key := IssuedToken("", "a.AAAAAAAAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAAAAAAAA")
	_, claimErr := tokens.Claim(t.Context(), key, ClaimOptions{Fingerprint: "f"})
	for name, err := range map[string]error{
		"claim": claimErr, "release": tokens.Release(t.Context(), key, "owner"), "complete": tokens.Complete(t.Context(), key, "owner", Answer{Status: 200}),
	} {
		expect.Error(t, name+" with a forged token", err, ErrUnknownToken)
	}
	genuine := IssuedToken("", tokens.tokenKeys.sign("", "AAAAAAAAAAAAAAAAAAAAAA"))
	_, err := tokens.Claim(t.Context(), genuine, ClaimOptions{Fingerprint: "f"})
	expect.Error(t, "claim with a genuine token, for which Redis is asked", err, redisstore.ErrUnavailable)
}

// After FLUSHALL, or an eviction, an issued token is refused, never run again; a client's own key
// is a new operation.
func TestIssuedTokenIsRefusedAfterFlush(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		tokens := newTokensWith(t, store, Config{TokenKeys: []Secret{testKey("a", 1)}})
		token := issuedToken(t, tokens)
		h := &handler{}
		guarded := tokens.Middleware(Route{Name: "r"})(h)
		wantStatus(t, "the first request", post(guarded, "x", TokenHeader+": "+token), 201)
		forget(t, tokens, IssuedToken("", token))
		for range 3 {
			wantStatus(t, "a request after the loss", post(guarded, "x", TokenHeader+": "+token), 410)
		}
		h.wantRuns(t, 1)
	})
}
