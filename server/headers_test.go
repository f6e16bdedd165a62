package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Whatever a route answers, a browser takes it for what it says to be, runs and loads nothing of it
// but what its own policy names, and shows it in no other page.
func TestEveryAnswerTellsBrowsersWhatItIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t, storetest.Open(t, redisstore.Config{}))
	seen := map[string]bool{}
	for _, route := range f.s.server.Routes() {
		if route.Path == "/events" {
			continue // its answer does not end
		}
		path, _ := fill(t, route)
		a := f.s.do(t, route.Method, path, "")
		seen[route.Path] = true
		a.saysWhatItIs(t)
	}
	for _, path := range []string{"/problems/forbidden", "/cache", "/db", "/docs", "/nope", "/incr/a%2Fb"} {
		f.s.do(t, "GET", path, "").saysWhatItIs(t)
	}
	again := []string{"POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`}
	for range 2 { // the second answer is a replay
		f.s.do(t, again[0], again[1], again[2], "Idempotency-Key: twice").saysWhatItIs(t)
	}
	for _, path := range []string{"/problems/{code}", "/cache", "/db", "/console/", "/incr/{key}"} {
		expect.Equal(t, "route "+path+" was looked at", seen[path], true)
	}
	page := f.s.do(t, "GET", "/problems/forbidden", "")
	expect.Contains(t, page.asked+": Content-Security-Policy", page.header.Get("Content-Security-Policy"), "style-src 'sha256-")
	expect.Equal(t, page.asked+": has a style that its policy forbids", strings.Contains(string(page.body), " style="), false)
}

func (a answer) saysWhatItIs(t *testing.T) {
	t.Helper()
	expect.Equal(t, a.asked+": X-Content-Type-Options", a.header.Values("X-Content-Type-Options"), []string{"nosniff"})
	policy := a.header.Values("Content-Security-Policy")
	if len(policy) != 1 || !strings.HasPrefix(policy[0], "default-src 'none'; ") || !strings.Contains(policy[0], "frame-ancestors 'none'") {
		t.Errorf("%s: got Content-Security-Policy %q, want one that begins with default-src 'none' and lets no page show it", a.asked, policy)
	}
	expect.Equal(t, a.asked+": Strict-Transport-Security, without TLS", a.header.Values("Strict-Transport-Security"), nil)
}

// Strict-Transport-Security counts for all ports of a name, so localhost is not told it.
func TestTransportSecurityIsSaidUnderANameByTLSAlone(t *testing.T) {
	s := serveTLS(t, nil, "HTTP/1.1", 0, false, "coatcheck.internal")
	for host, want := range map[string]string{"": "", "localhost": "", "a.localhost:8443": "", "10.1.2.3": "", "[::1]:8443": "", "coatcheck.internal": "max-age=31536000", "coatcheck.internal:8443": "max-age=31536000"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/livez", nil)
		expect.NoError(t, "http.NewRequestWithContext", err)
		request.Host = host
		response, err := s.client.Do(request)
		expect.NoError(t, "GET /livez under "+host, err)
		response.Body.Close()
		expect.Equal(t, "Strict-Transport-Security under "+host, response.Header.Get("Strict-Transport-Security"), want)
	}
}
