package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/wire"
)

func TestTokenIsIssuedAndShown(t *testing.T) {
	p := serve(t, "--dev")
	env := map[string]string{"COATCHECK_SERVER": p.banner.URL}
	code, stdout, stderr := coatcheck(t, env, "token", "issue", "--ttl", "10m", "--scope", "billing")
	token := strings.TrimSuffix(stdout, "\n")
	if code != done || len(token) < 20 || strings.ContainsAny(token, " \n") {
		t.Fatalf("%d %q %s", code, stdout, stderr)
	}
	code, stdout, stderr = coatcheck(t, nil, "token", "show", "--server", p.banner.URL, "--", token)
	if code != done || !strings.Contains(stdout, "issued") || !strings.Contains(stdout, "billing") || strings.Contains(stdout, "fence") {
		t.Errorf("%d %s %s", code, stdout, stderr)
	}
	var status wire.TokenStatus
	code, stdout, _ = coatcheck(t, env, "token", "show", "--json", "--", token)
	if err := json.Unmarshal([]byte(stdout), &status); code != done || err != nil || status.State != "issued" || status.Scope != "billing" {
		t.Errorf("%d %s %v", code, stdout, err)
	}
	if left := time.Until(status.ExpiresAt); left < time.Minute || left > time.Hour {
		t.Errorf("it expires in %v", left)
	}
}

func TestTokenForMachinesAndItsStateAfterUse(t *testing.T) {
	p := serve(t, "--dev")
	var issued wire.TokenIssued
	code, stdout, stderr := coatcheck(t, map[string]string{"COATCHECK_SERVER": p.banner.URL, "COATCHECK_TTL": "1h"}, "token", "issue", "--json")
	if err := json.Unmarshal([]byte(stdout), &issued); code != done || err != nil || issued.Token == "" || issued.Scope != "" {
		t.Fatalf("%d %s %s", code, stdout, stderr)
	}
	if a := p.do("POST", "/payments", payment, "Idempotency-Token: "+issued.Token); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	code, stdout, stderr = coatcheck(t, nil, "token", "show", "--server", p.banner.URL, "--", issued.Token)
	for _, part := range []string{"completed", "attempts     1", "fence", "lease until"} {
		if code != done || !strings.Contains(stdout, part) {
			t.Errorf("%q is missing in %d %s %s", part, code, stdout, stderr)
		}
	}
}

func TestTokenCommandReadsTheFileOfTheService(t *testing.T) {
	p := serve(t)
	path := file(t, "server: "+p.banner.URL+"\nredis: redis://elsewhere:1\nttl: 2h\n")
	if code, stdout, stderr := coatcheck(t, map[string]string{"COATCHECK_CONFIG": path}, "token", "issue"); code != done || stdout == "" {
		t.Errorf("%d %s", code, stderr)
	}
}

// Each row is a command line and the exit code that scripts decide by.
func TestTokenExitCodes(t *testing.T) {
	p := serve(t)
	away := httptest.NewServer(nil)
	away.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "bad gateway")
	}))
	defer proxy.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for _, row := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"token"}, done, ""},
		{[]string{"token", "nonsense"}, usage, "nonsense"},
		{[]string{"token", "show"}, usage, "one token"},
		{[]string{"token", "show", "a", "b"}, usage, "one token"},
		{[]string{"token", "show", "-aSecretToken"}, usage, "behind two"},
		{[]string{"token", "show", "--nonsense"}, usage, "nonsense"},
		{[]string{"token", "show", "a b", "--server", p.banner.URL}, usage, "a token has"},
		{[]string{"token", "issue", "extra"}, usage, "extra"},
		{[]string{"token", "issue", "--ttl", "soon"}, usage, "duration"},
		{[]string{"token", "issue", "--ttl", "1ms"}, usage, "duration"},
		{[]string{"token", "issue", "--server", "localhost"}, usage, "http://host:port"},
		{[]string{"token", "issue", "--scope", "a b", "--server", p.banner.URL}, usage, "scope"},
		{[]string{"token", "show", "made-up", "--server", p.banner.URL}, failed, "idempotency-token-unknown"},
		{[]string{"token", "show", "--server", p.banner.URL, "--", "-made-up"}, failed, "idempotency-token-unknown"},
		{[]string{"token", "issue", "--server", other.URL}, failed, "404"},
		{[]string{"token", "issue", "--server", away.URL}, tryLater, "refused"},
		{[]string{"token", "show", "made-up", "--server", away.URL}, tryLater, "refused"},
		{[]string{"token", "issue", "--server", proxy.URL}, tryLater, "502"},
		{[]string{"token", "show", "made-up", "--server", proxy.URL}, tryLater, "502"},
	} {
		code, _, stderr := coatcheck(t, nil, row.args...)
		if code != row.code || !strings.Contains(stderr, row.stderr) || strings.Contains(stderr, "SecretToken") {
			t.Errorf("%v: %d %s", row.args, code, stderr)
		}
	}
}

func TestTokenIsTriedLaterWhenTheStoreIsAway(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	redis.Kill()
	if code, _, stderr := coatcheck(t, nil, "token", "issue", "--server", p.banner.URL); code != tryLater || !strings.Contains(stderr, "store-unavailable") {
		t.Errorf("%d %s", code, stderr)
	}
}
