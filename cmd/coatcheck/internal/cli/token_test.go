package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/proctest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func TestTokenIsIssuedAndShown(t *testing.T) {
	p := serve(t, "--dev")
	env := map[string]string{"COATCHECK_SERVER": p.banner.URL}
	issued := execute(t, env, "token", "issue", "--ttl", "10h", "--scope", "billing").exits(done)
	token := strings.TrimSuffix(issued.stdout, "\n")
	if len(token) < 20 || strings.ContainsAny(token, " \n") {
		t.Fatalf("%s prints %q, want one word of 20 characters at least", issued.line, issued.stdout)
	}
	shown := execute(t, nil, "token", "show", "--server", p.banner.URL, "--", token).exits(done).prints("issued", "billing")
	lacks(t, shown.line, shown.stdout, "fence")
	var status api.TokenStatus
	execute(t, env, "token", "show", "--json", "--", token).exits(done).into(&status)
	expect.Equal(t, "state and scope in token show --json", [2]string{string(status.State), status.Scope}, [2]string{"issued", "billing"})
	if left := time.Until(status.ExpiresAt.Time); left < time.Hour || left > 11*time.Hour {
		t.Errorf("a token of 10 hours expires in %v", left)
	}
}

func TestTokenForMachinesAndItsStateAfterUse(t *testing.T) {
	p := serve(t, "--dev")
	var issued api.TokenIssued
	issue := execute(t, map[string]string{"COATCHECK_SERVER": p.banner.URL}, "token", "issue", "--json").exits(done).into(&issued)
	if issued.Token == "" || issued.Scope != "" {
		t.Fatalf("%s prints %s, want a token without a scope", issue.line, issue.stdout)
	}
	p.answers(201, "POST", "/payments", payment, "Idempotency-Token: "+issued.Token)
	execute(t, nil, "token", "show", "--server", p.banner.URL, "--", issued.Token).exits(done).prints("completed", "attempts     1", "fence", "lease until")
}

func TestTokenCommandReadsTheFileOfTheService(t *testing.T) {
	p := serve(t)
	path := file(t, "server: "+p.banner.URL+"\nredis: redis://elsewhere:1\n")
	if issued := execute(t, map[string]string{"COATCHECK_CONFIG": path}, "token", "issue").exits(done); issued.stdout == "" {
		t.Errorf("%s prints nothing, want a token", issued.line)
	}
}

// Each row is a command line and the exit code that scripts decide by.
func TestTokenExitCodes(t *testing.T) {
	p := serve(t)
	away := "http://" + proctest.ClosedPort(t)
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
		{[]string{"token", "show", "-aSecretToken"}, usage, "after two"},
		{[]string{"token", "show", "--nonsense"}, usage, "nonsense"},
		{[]string{"token", "show", "a b", "--server", p.banner.URL}, usage, "a token has"},
		{[]string{"token", "issue", "extra"}, usage, "extra"},
		{[]string{"token", "issue", "--ttl", "soon"}, usage, "duration"},
		{[]string{"token", "issue", "--ttl", "1ms"}, usage, "duration"},
		{[]string{"token", "issue", "--server", "localhost"}, usage, "http://host:port"},
		{[]string{"token", "issue", "--scope", "a b", "--server", p.banner.URL}, usage, "scope"},
		{[]string{"token", "show", "made-up", "--server", p.banner.URL}, failed, "idempotency-token-unknown"},
		{[]string{"token", "show", "--server", p.banner.URL, "--", "-made-up"}, failed, "idempotency-token-unknown"},
		{[]string{"token", "issue", "--server", other.URL}, tryLater, "404"},
		{[]string{"token", "issue", "--server", away}, tryLater, "refused"},
		{[]string{"token", "show", "made-up", "--server", away}, tryLater, "refused"},
		{[]string{"token", "issue", "--server", proxy.URL}, tryLater, "502"},
		{[]string{"token", "show", "made-up", "--server", proxy.URL}, tryLater, "502"},
	} {
		ended := execute(t, nil, row.args...).exits(row.code, row.stderr)
		lacks(t, "stderr of "+ended.line, ended.stderr, "SecretToken")
	}
}

func TestTokenIsTriedLaterWhenTheStoreIsAway(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	redis.Kill()
	execute(t, nil, "token", "issue", "--server", p.banner.URL).exits(tryLater, "store-unavailable")
}

// A token that was issued straight on Redis, signed with the service's keys, is good at the service
// for callers that show no key, and each side shows how far the other has come with it.
func TestTokenIssuedStraightOnRedisIsUsedAtTheService(t *testing.T) {
	redis := redistest.Start(t)
	env := map[string]string{"COATCHECK_TOKEN_KEYS": aKey("t", 1)}
	straight := []string{"--redis", redis.URL()}
	p := serve(t, "--dev", "--redis", redis.URL(), "--token-keys", aKey("t", 1))
	issued := execute(t, env, append([]string{"token", "issue", "--scope", ""}, straight...)...).exits(done)
	token := strings.TrimSuffix(issued.stdout, "\n")
	show := func(at ...string) []string {
		return slices.Concat([]string{"token", "show"}, at, []string{"--", token})
	}
	execute(t, env, show("--server", p.banner.URL)...).exits(done).prints("issued")
	p.answers(201, "POST", "/payments", payment, "Idempotency-Token: "+token)
	execute(t, env, show(straight...)...).exits(done).prints("completed")

	other := map[string]string{"COATCHECK_TOKEN_KEYS": aKey("t", 2)}
	execute(t, other, show(straight...)...).exits(failed, "idempotency-token-unknown")
	execute(t, env, append([]string{"token", "issue", "--api-key", "ck_a_b"}, straight...)...).exits(usage, "--server")
}
