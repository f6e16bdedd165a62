package gateway

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestKeysOnUnguardedRoutesAreCounted(t *testing.T) {
	for _, row := range []struct {
		method, header string
		counts         bool
	}{
		{"POST", "Idempotency-Key: a", true},
		{"POST", "X-Idempotency-Key: a", true},
		{"DELETE", "Idempotency-Token: a", true},
		{"POST", "Other: a", false},
		{"GET", "Idempotency-Key: a", false},
	} {
		t.Run(row.method+" "+row.header, func(t *testing.T) {
			s := serve(t, newShop(t, nil).URL, "routes: [{match: /v1/, guard: false}]")
			for range 3 {
				s.do(row.method, "/v1/customers/c0ffee42/refund", "x", row.header)
			}
			outcome := "unguarded"
			if row.counts {
				outcome = "unguarded_key"
			}
			s.wantMetrics(`coatcheck_gateway_requests_total{outcome="` + outcome + `",route="/v1/"} 3`)
		})
	}
}

func TestRouteThatIsMissingIsToldOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	var warning unnamedWarning
	began := time.Now()
	for _, at := range []time.Duration{0, 30 * time.Second, 59 * time.Second, time.Minute, 90 * time.Second} {
		warning.write(slog.New(slog.NewTextHandler(&log, nil)), httptest.NewRequest(http.MethodPost, "/v1/customers/c0ffee42/refund", nil), began.Add(at))
	}
	expect.Equal(t, "lines in a minute and a half", strings.Count(log.String(), "level=WARN"), 2)
	expect.Contains(t, "the log", log.String(), "method=POST", "shape=/v1/customers/{…}/refund", "with {name} for each {…}")
}

// Callers without a name are one, and share the answers of a key. The log says so where that is not
// what the configuration wants.
func TestCallersWithoutANameAreToldOnceAMinute(t *testing.T) {
	const line = "all such callers are one"
	for name, row := range map[string]struct {
		routes string
		set    func(*Config)
		lines  int
	}{
		"by Authorization":      {payments, func(*Config) {}, 1},
		"as is meant":           {payments, func(c *Config) { c.OneCaller = true }, 0},
		"as the route says":     {"routes: [{match: POST /payments, principal: none}]", func(*Config) {}, 0},
		"with a name for them":  {payments, func(c *Config) { c.Principal = func(*http.Request) (string, error) { return "ann", nil } }, 0},
		"of unmatched requests": {"{unmatched: pass, routes: [{match: POST /other}]}", func(*Config) {}, 1},
	} {
		r := start(t, newShop(t, nil).URL, row.routes, row.set)
		for i := range 3 {
			r.wantPaid(r.pay("a"), "paid 1", i > 0)
		}
		expect.Equal(t, name+": lines in the log", strings.Count(r.log.String(), line), row.lines)
	}
}

func TestShapeShowsNothingThatMayBeSecret(t *testing.T) {
	for path, want := range map[string]string{
		"/":                           "/",
		"/orders/":                    "/orders/",
		"/v1/orders/42/items":         "/v1/orders/{…}/items",
		"/reset/S3cr3t":               "/reset/{…}",
		"/users/ann@example.com":      "/users/{…}",
		"/" + strings.Repeat("a", 40): "/{…}",
		"/a/b/c/d/e/f/g/h/i/j/k":      "/a/b/c/d/e/f/g/h/{…}",
	} {
		expect.Equal(t, "the shape of "+path, shapeOf(path), want)
	}
}

// The refusal of a request that no route names has a route for it, and for no other request.
func TestRefusalOfAnUnnamedRequestHasItsRoute(t *testing.T) {
	upstream := newShop(t, nil)
	for _, path := range []string{"/", "/orders", "/orders/", "/orders/7/", "/:id/a:b", "/a*b", "/caf%C3%A9", "/x%20y", "/a'b(c)!"} {
		r := start(t, upstream.URL, "routes: [{match: POST /payments}]")
		_, hint, _ := strings.Cut(r.do("POST", path, "x").problem().Detail, "file: - ")
		match, _, _ := strings.Cut(hint, ", with {name}")
		r.write("routes:\n  - " + match + "\n    guard: false\n")
		expect.MustEqual(t, "the fault of "+match, r.g.Reload(), nil)
		r.wantStatus(r.do("POST", path, "x"), http.StatusCreated)
		r.wantCode(r.do("POST", path+"x", "x"), api.RouteUnknown)
	}
}
