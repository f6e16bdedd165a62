package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/idempotency"
	verify "github.com/coatcheck/coatcheck/internal/testing/expect" // expect is another name here
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// pace is how long the doors' slow payment takes, and for how long an attempt may be silent.
type pace struct{ slow, lease time.Duration }

// unhurried is a pace at which no lease ends, however busy the machine is: the check slow-owner,
// which needs a payment that outlasts its lease, is left out.
var unhurried = pace{slow: 600 * time.Millisecond, lease: time.Hour}

// skip is which checks the suite leaves out, besides some. A resolver is the service's, which no
// door is.
func (p pace) skip(others ...string) []string {
	others = append(others, "resolver-.*")
	if p.slow < p.lease {
		others = append(others, "slow-owner")
	}
	return []string{"-skip", strings.Join(others, "|")}
}

func (p pace) args() []string { return []string{"-slow", p.slow.String(), "-lease", p.lease.String()} }

// door is a way into coatcheck, as the suite sees it.
type door struct {
	args          []string // what the suite is told of it
	notApplicable []string // checks that it gives no way to look at
}

// doors are all ways into coatcheck. A new one is a new row: its server ends with the test.
var doors = []struct {
	name string
	open func(*testing.T, *redisstore.Store, pace) door
}{
	{"middleware", middlewareDoor},
	{"service", serviceDoor},
	{"service with slow payments", slowServiceDoor},
	{"service with tokens only", tokenDoor},
	{"gateway", gatewayDoor},
}

// Each door has a store of its own: some would share its ledger.
func TestCoatcheckConforms(t *testing.T) {
	for _, row := range doors {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.open(t, storetest.Open(t, redisstore.Config{}), unhurried).wantAllPassed(t)
		})
	}
}

// wantAllPassed runs the suite against the door.
func (d door) wantAllPassed(t *testing.T) {
	t.Helper()
	out, code := report(t, d.args...)
	verify.Equal(t, "exit code", code, allPassed)
	verify.Equal(t, "checks passed", out.Passed, len(out.Checks)-len(d.notApplicable))
	verify.Equal(t, "checks that were not applicable", skipped(out), d.notApplicable, cmpopts.EquateEmpty())
}

// skipped lists the checks that were not applicable.
func skipped(out outcome) (found []string) {
	for _, r := range out.Checks {
		if r.Verdict == na {
			found = append(found, r.Name)
		}
	}
	return found
}

// middlewareDoor is the middleware around a handler that does all that the suite can ask for, so
// that nothing is left out.
func middlewareDoor(t *testing.T, store *redisstore.Store, p pace) door {
	principal := func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
	guard := idempotency.New(store, idempotency.Config{Principal: principal, PolicyURL: "/policy"})
	t.Cleanup(func() {
		verify.Error(t, "closing the guard", guard.Close(context.Background()), nil)
	})
	h := handler{slow: p.slow}
	guarded := guard.Middleware(idempotency.Route{Lease: p.lease, Frees: []string{"307", "308"}})(&h)
	return wholeDoor(t, payments(t, guarded, &h, guard, principal), "/policy", slices.Concat(p.args(), p.skip("early-answer")))
}

// gatewayDoor is the gateway in front of the same handler without a guard. Nothing is left out but
// one check: a proxy passes no header on that Connection names, on the first answer either.
func gatewayDoor(t *testing.T, store *redisstore.Store, p pace) door {
	h := handler{slow: p.slow}
	principal := idempotency.HeaderPrincipal("Authorization")
	issuer := idempotency.New(store, idempotency.Config{Principal: principal})
	behind := httptest.NewServer(payments(t, &h, &h, issuer, principal))
	t.Cleanup(behind.Close)
	upstream, err := gateway.ParseUpstream(behind.URL)
	verify.NoError(t, "the gateway's upstream", err)
	routes := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(routes, fmt.Appendf(nil, "routes: [{match: [POST /payments, 'POST /payments/{$}'], lease_ms: %d, frees: [307, 308]}, {match: POST /token, guard: false}]", p.lease.Milliseconds()), 0o600); err != nil {
		t.Fatalf("writing the gateway's routes: %v", err)
	}
	g, err := gateway.New(gateway.Config{Store: store, Upstream: upstream, RoutesFile: routes, Principal: principal})
	verify.NoError(t, "making the gateway", err)
	t.Cleanup(func() {
		verify.Error(t, "closing the gateway", errors.Join(g.Close(context.Background()), issuer.Close(context.Background())), nil)
	})
	return wholeDoor(t, g, "/idempotency-policy", slices.Concat(p.args(), p.skip("replay-no-hop-by-hop"), []string{"-early-header", "X-Early: yes"}))
}

// payments are the routes that the suite looks at, the guarded one as it is given.
func payments(t *testing.T, pay http.Handler, h *handler, issuer *idempotency.Tokens, principal func(*http.Request) (string, error)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /payments", pay)
	mux.Handle("POST /payments/{$}", pay)
	mux.HandleFunc("GET /payments", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"total":%d}`, h.runs.Load()) })
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		who, err := principal(r)
		verify.Error(t, "the principal", err, nil)
		token, err := issuer.Issue(r.Context(), who, "", 0)
		verify.Error(t, "issuing a token", err, nil)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"token":%q}`, token.Value)
	})
	return mux
}

// wholeDoor is a door at which the suite can look at everything.
func wholeDoor(t *testing.T, h http.Handler, policy string, more []string) door {
	return door{args: slices.Concat(listen(t, h), asTwo, []string{
		"-token-url", "/token", "-policy", policy, "-slow-header", "X-Slow: yes", "-error-header", "X-Fail: yes", "-redirect-path", "/payments/", "-strict",
	}, more)}
}

// handler is a payment as a user of the middleware would write it. It counts its runs, and obeys
// the suite.
type handler struct {
	slow time.Duration
	runs atomic.Int64
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/payments/" { // a whole URL, as some frameworks send it
		http.Redirect(w, r, "http://"+r.Host+"/payments", http.StatusTemporaryRedirect)
		return
	}
	if r.Header.Get("X-Early") != "" { // as services do that answer and close with the rest unread
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\nConnection: close\r\n\r\nwho")
			_ = conn.Close()
		}
		return
	}
	h.runs.Add(1)
	if r.Header.Get("X-Slow") != "" {
		time.Sleep(h.slow)
	}
	id := rand.Text()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Set-Cookie", "session="+id)
	w.Header().Set("Connection", "X-Hop")
	w.Header().Set("X-Hop", id)
	if r.Header.Get("X-Fail") != "" {
		w.WriteHeader(http.StatusInternalServerError)
	}
	fmt.Fprintf(w, `{"id":%q}`, id)
}

// The demo's handler is not slow, does not fail once it has begun, sets no cookie and takes no
// query.
var serviceLacks = []string{"422-query", "replay-no-cookies", "replay-no-hop-by-hop", "error-replayed", "early-answer", "redirect-followed", "redirect-inside"}

var asTwo = []string{"-principal-a", "Authorization: Bearer a", "-principal-b", "Authorization: Bearer b"}

func serviceDoor(t *testing.T, store *redisstore.Store, _ pace) door {
	return door{
		append(service(t, store, server.Config{}), "-token-url", "/token", "-token-body", `{"scope":"payments"}`, "-skip", "409|hang-up|slow-owner|resolver-.*"),
		serviceLacks,
	}
}

func slowServiceDoor(t *testing.T, store *redisstore.Store, p pace) door {
	config := server.Config{PaymentDelay: p.slow, PaymentLease: p.lease}
	return door{slices.Concat(service(t, store, config), p.args(), p.skip(), []string{"-run", "409|hang-up|slow-owner"}), nil}
}

// tokenDoor is the service with a token in place of every key.
func tokenDoor(t *testing.T, store *redisstore.Store, _ pace) door {
	return door{
		append(service(t, store, server.Config{}), "-token-url", "/token", "-header", "Idempotency-Token", "-skip", "409|hang-up|slow-owner|resolver-.*"),
		slices.Concat([]string{"key-quoted-and-bare", "key-escapes"}, serviceLacks, []string{"principals"}),
	}
}

func service(t *testing.T, store *redisstore.Store, config server.Config) (args []string) {
	config.Store, config.Dev, config.Principal = store, true, idempotency.HeaderPrincipal("Authorization")
	s := server.New(config)
	t.Cleanup(func() {
		verify.Error(t, "closing the service", s.Close(context.Background()), nil)
	})
	return append(append(listen(t, s.Handler()), asTwo...), "-policy", "/idempotency-policy")
}

// listen serves a handler until the test ends, and returns what the suite is told of every door.
func listen(t *testing.T, h http.Handler) (args []string) {
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return []string{"-url", web.URL, "-count-url", "/payments", "-count-field", "total", "-n", "20"}
}
