package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// aKey is a setting of one key.
func aKey(id string, fill byte) string {
	return id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32))
}

func TestKeysAreShownByTheirIDsOnly(t *testing.T) {
	var stdout, stderr bytes.Buffer
	env := map[string]string{"COATCHECK_TOKEN_KEYS": aKey("new", 1) + "," + aKey("old", 2), "COATCHECK_ANSWER_KEYS": aKey("a", 3)}
	code := run(context.Background(), []string{"config", "print"}, func(name string) string { return env[name] }, &stdout, &stderr)
	if code != done || !strings.Contains(stdout.String(), `token-keys: "new:…,old:…"`) || !strings.Contains(stdout.String(), `answer-keys: "a:…"`) {
		t.Errorf("%d\n%s%s", code, stdout.String(), stderr.String())
	}
	env["COATCHECK_TOKEN_KEYS"] = "k:hunter2"
	env["COATCHECK_PRINCIPAL_HEADERS"] = "Authorization, X User"
	stderr.Reset()
	code = run(context.Background(), []string{"config", "check"}, func(name string) string { return env[name] }, &stdout, &stderr)
	if code != usage || !strings.Contains(stderr.String(), "token-keys (COATCHECK_TOKEN_KEYS)") || !strings.Contains(stderr.String(), `"X User"`) {
		t.Errorf("%d %s", code, stderr.String())
	}
	if strings.Contains(stdout.String()+stderr.String(), "hunter2") {
		t.Error("a secret is shown")
	}
}

// Two services with the same keys and principals, on one Redis: a token is good at both for its principal, at neither for another, and Redis holds no answer
// that it could read.
func TestServeWithKeysAndPrincipals(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	args := []string{"--dev", "--redis", server.URL(), "--token-keys", aKey("t", 1), "--answer-keys", aKey("a", 2), "--principal-headers", "Authorization"}
	one, two := serve(t, args...), serve(t, args...)
	const alice, bob = "Authorization: Bearer alice", "Authorization: Bearer bob"
	var token wire.TokenIssued
	one.do("POST", "/token", "", alice).into(t, &token)
	if !strings.HasPrefix(token.Token, "t.") {
		t.Errorf("the token is not signed: %s", token.Token)
	}
	header := "Idempotency-Token: " + token.Token
	if a := two.do("POST", "/payments", payment, header, bob); a.status != http.StatusGone || a.code() != wire.TokenUnknown {
		t.Errorf("to another principal: %d %s", a.status, a.body)
	}
	first, again := two.do("POST", "/payments", payment, header, alice), one.do("POST", "/payments", payment, header, alice)
	if first.status != http.StatusCreated || again.status != http.StatusCreated || !bytes.Equal(first.body, again.body) {
		t.Errorf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
	}
	if a := one.do("GET", "/token/"+token.Token, "", bob); a.status != http.StatusGone {
		t.Errorf("its state, to another principal: %d %s", a.status, a.body)
	}
	keys, err := server.Client().Keys(t.Context(), "*token*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%v, %v", keys, err)
	}
	for _, key := range keys {
		record, err := server.Client().HGetAll(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range record {
			if strings.Contains(value, "acct_1") {
				t.Errorf("%s holds %q", name, value)
			}
		}
	}
	one.stop()
	two.stop() // their logs are whole then
	if logs := one.stderr.String() + two.stderr.String(); strings.Contains(logs, token.Token) {
		t.Error("the token is in a log")
	}
}

func TestServeWarnsOfARedisThatLosesState(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	p := serve(t, "--redis", server.URL())
	text := strings.Join(p.banner.Hazards, "\n")
	if !strings.Contains(text, "evicts keys") || !strings.Contains(text, "keeps nothing on disk") {
		t.Errorf("the banner says %q", text)
	}
	p.stop() // its log is whole then
	if logs := p.stderr.String(); !strings.Contains(logs, "maxmemory-policy noeviction") || !strings.Contains(logs, "appendonly yes") {
		t.Errorf("the log says %s", logs)
	}
	if people := p.banner.people(&config{}); !strings.Contains(people, "WARNING     "+server.Addr()) {
		t.Errorf("people read\n%s", people)
	}
	safe := redistest.Start(t, "--appendonly", "yes")
	if p := serve(t, "--redis", safe.URL()); len(p.banner.Hazards) > 0 {
		t.Errorf("a safe one: %q", p.banner.Hazards)
	}
}
