package gateway

import (
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The gateway sends the upstream's own Host on, so an upstream that knows its names is not kept
// from DNS rebinding by that any more: the gateway does it, where it is told the names.
func TestNamesUnderWhichClientsAsk(t *testing.T) {
	upstream := mirror(t)
	r := start(t, upstream.URL, "routes: [{match: /payments, accept: key}, {match: /, guard: false}]", func(c *Config) { c.AllowedHosts = []string{"shop.example"} })
	for host, status := range map[string]int{"shop.example": 200, "shop.example:8081": 200, "127.0.0.1:8081": 200, "evil.test": 403} {
		for _, path := range []string{"/payments", "/other", policyPath} {
			a := r.do("GET", path, "", "Host: "+host, "Idempotency-Key: k")
			expect.Equal(t, "status of GET "+path+" under "+host, a.status, status)
			if status == http.StatusForbidden {
				expect.Equal(t, "code of GET "+path+" under "+host, a.problem().Code, api.Forbidden)
			}
		}
	}
	r.g.SetAllowedHosts(nil)
	expect.Equal(t, "status under another name, where none is set", r.do("GET", "/other", "", "Host: evil.test").status, 200)
}

// Package frontdoor has the rule; here it is that all of the admin side is under it.
func TestAdminSideRefusesWhatABrowserMayHaveBeenMadeToSend(t *testing.T) {
	r := unconnected(t)
	for host, status := range map[string]int{"127.0.0.1:8082": 200, "evil.test:8082": 403} {
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			expect.Equal(t, "status of GET "+path+" under "+host, r.admin(path, host, "127.0.0.1:1").Code, status)
		}
	}
}

func TestPagesOfTheGatewayTellBrowsersWhatTheyAre(t *testing.T) {
	r := start(t, mirror(t).URL, payments)
	for path, style := range map[string]string{"/problems/forbidden": "style-src 'sha256-", policyPath: ""} {
		a := r.do("GET", path, "")
		expect.Equal(t, a.asked+": X-Content-Type-Options", a.header.Values("X-Content-Type-Options"), []string{"nosniff"})
		expect.Contains(t, a.asked+": Content-Security-Policy", a.header.Get("Content-Security-Policy"), "default-src 'none'; ", style, "frame-ancestors 'none'")
	}
	refused := r.do("POST", "/payments", "")
	expect.Equal(t, refused.asked+": X-Content-Type-Options", refused.header.Values("X-Content-Type-Options"), []string{"nosniff"})
	passed := r.do("GET", "/other", "")
	expect.Equal(t, passed.asked+", which is the upstream's to answer: Content-Security-Policy", passed.header.Values("Content-Security-Policy"), nil)
	w := r.admin("/metrics", "127.0.0.1:8082", "127.0.0.1:1")
	expect.Equal(t, "GET /metrics of the admin side: X-Content-Type-Options", w.Header().Get("X-Content-Type-Options"), "nosniff")
	expect.Contains(t, "GET /metrics of the admin side: Content-Security-Policy", w.Header().Get("Content-Security-Policy"), "default-src 'none'; ", "frame-ancestors 'none'")
}
