package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// aKey is a setting of one key.
func aKey(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func TestKeysAreShownByTheirIDsOnly(t *testing.T) {
	var stdout, stderr bytes.Buffer
	env := map[string]string{"COATCHECK_REDIS": "embedded:", "COATCHECK_TOKEN_KEYS": aKey("new", 1) + "," + aKey("old", 2), "COATCHECK_ANSWER_KEYS": aKey("a", 3)}
	code := run(context.Background(), []string{"config", "print"}, func(name string) string { return env[name] }, &stdout, &stderr)
	expect.Equal(t, "exit code of config print, which wrote "+stderr.String(), code, done)
	expect.Contains(t, "config print", stdout.String(), `token-keys: "new:…,old:…"`, `answer-keys: "a:…"`)
	env["COATCHECK_TOKEN_KEYS"] = "k:hunter2"
	env["COATCHECK_PRINCIPAL_HEADERS"] = "Authorization, X User"
	stderr.Reset()
	code = run(context.Background(), []string{"config", "check"}, func(name string) string { return env[name] }, &stdout, &stderr)
	expect.Equal(t, "exit code of config check, which wrote "+stderr.String(), code, usage)
	expect.Contains(t, "stderr of config check", stderr.String(), "token-keys (COATCHECK_TOKEN_KEYS)", `"X User"`)
	lacks(t, "config print, then config check", stdout.String()+stderr.String(), "hunter2")
}

// Two services with the same keys and principals, on one Redis: a token is good at both for its
// principal, at neither for another, and Redis holds no answer that it could read.
func TestServeWithKeysAndPrincipals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	args := []string{"--dev", "--redis", server.URL(), "--token-keys", aKey("t", 1), "--answer-keys", aKey("a", 2), "--principal-headers", "Authorization"}
	one, two := serve(t, args...), serve(t, args...)
	const alice, bob = "Authorization: Bearer alice", "Authorization: Bearer bob"
	var token api.TokenIssued
	one.do("POST", "/token", "", alice).into(t, &token)
	if !strings.HasPrefix(token.Token, "t.") {
		t.Errorf("the token is not signed by key t: %s", token.Token)
	}
	header := "Idempotency-Token: " + token.Token
	foreign := two.answers(http.StatusGone, "POST", "/payments", payment, header, bob)
	expect.Equal(t, "code of a payment with the token of another principal", foreign.code(), api.TokenUnknown)
	first := two.answers(http.StatusCreated, "POST", "/payments", payment, header, alice)
	again := one.answers(http.StatusCreated, "POST", "/payments", payment, header, alice)
	expect.Equal(t, "the payment repeated at the other service", string(again.body), string(first.body))
	one.answers(http.StatusGone, "GET", "/token/"+token.Token, "", bob)
	keys, err := server.Client().Keys(t.Context(), "*token*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys of tokens in Redis: got %q and error %v, want one at least", keys, err)
	}
	for _, key := range keys {
		record, err := server.Client().Get(t.Context(), key).Result()
		expect.NoError(t, "read the record", err)
		lacks(t, key, record, "acct_1")
	}
	one.stop()
	two.stop() // their logs are whole then
	lacks(t, "the logs", one.stderr.String()+two.stderr.String(), token.Token)
}

func TestServeWarnsOfARedisThatLosesState(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	p := serve(t, "--redis", server.URL())
	expect.Contains(t, "hazards of the banner", strings.Join(p.banner.Hazards, "\n"), "evicts keys", "keeps nothing on disk")
	p.stop() // its log is whole then
	expect.Contains(t, "log", p.stderr.String(), "maxmemory-policy noeviction", "appendonly yes")
	expect.Contains(t, "banner for people", p.banner.people(&config.Service{}), "WARNING     "+server.Addr())
	safe := redistest.Start(t, "--appendonly", "yes")
	expect.Equal(t, "hazards of a Redis that keeps all on disk", serve(t, "--redis", safe.URL()).banner.Hazards, nil, cmpopts.EquateEmpty())
}
