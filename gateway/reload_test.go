package gateway

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func soon(c *Config) { c.WatchEvery = 5 * time.Millisecond }

func TestChangedRoutesFileIsPutInForce(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, soon)
	s.wantStatus(s.do("POST", "/orders", "x"), 201)
	s.write("routes: [{match: POST /orders, accept: token}, {match: /, guard: false}]")
	expect.Eventually(t, "the new route guards", func() bool { return s.do("POST", "/orders", "x").problem().Code == api.KeyMissing })
	s.wantStatus(s.do("POST", "/payments", "x"), 201)
	policy := s.do("GET", "/idempotency-policy", "")
	expect.Contains(t, policy.asked, policy.body, "POST /orders")
	expect.Equal(t, policy.asked+": names the old route", strings.Contains(policy.body, "/payments"), false)
	s.wantMetrics(`coatcheck_gateway_routes 1`, `coatcheck_gateway_reloads_total{result="ok"} 2`)
	expect.Eventually(t, "GET /metrics does not name the old route", func() bool {
		_, body := s.side("/metrics")
		return !strings.Contains(body, `route="POST /payments"`)
	})
	s.wantEnd()
}

func TestWrongRoutesFileKeepsTheRoutesBeforeIt(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, soon)
	_, before := s.readiness()
	s.write("routes: [{match: POST /orders, lease_ms: 1, colour: red}]")
	expect.Eventually(t, "the faults are told", func() bool { _, ready := s.readiness(); return len(ready.RoutesFaults) == 2 })
	status, now := s.readiness()
	expect.Equal(t, "GET /readyz with a wrong file", status, 200)
	expect.Equal(t, "GET /readyz with a wrong file", now, before, cmpopts.IgnoreFields(Readiness{}, "RoutesFaults", "FaultCount"))
	s.wantCode(s.do("POST", "/payments", "x"), api.KeyMissing)
	expect.Contains(t, "error of Reload", fmt.Sprint(s.g.Reload()), "unknown field")
	expect.MustEqual(t, "the error of removing the file", os.Remove(s.file), nil)
	expect.Eventually(t, "the missing file is told", func() bool {
		_, ready := s.readiness()
		return len(ready.RoutesFaults) == 1 && strings.Contains(ready.RoutesFaults[0], "no such file")
	})
	_, body := s.side("/metrics")
	expect.Contains(t, "GET /metrics", body, `coatcheck_gateway_reloads_total{result="failed"} 3`)
	s.write(payments)
	expect.Eventually(t, "all is well", func() bool { _, ready := s.readiness(); return len(ready.RoutesFaults) == 0 })
	expect.Contains(t, "log", s.log.String(), "unknown field", "lease_ms: a whole number", "no such file")
	s.wantEnd()
}

// A file that is being written looks like a shorter one: it is taken only when it stands still.
func TestFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	g := unconnected(t).g
	version := g.routes.Load().version
	write := func(text string) {
		expect.MustEqual(t, "the error of writing the file", os.WriteFile(g.file.path, []byte(text), 0o600), nil)
	}
	write("routes:\n  - match: POST /a\n")
	g.look()
	write("routes:\n  - match: POST /a\n  - match: POST /b\n")
	g.look()
	expect.Equal(t, "version in force when another was seen once", g.routes.Load().version, version)
	wantRoutes := func(when string, faults int) {
		t.Helper()
		expect.Equal(t, "routes in force "+when, len(g.routes.Load().routes.List), 2)
		if got := g.file.faults(); len(got) != faults {
			t.Errorf("faults %s: got %q, want %d", when, got, faults)
		}
	}
	g.look()
	wantRoutes("when a version was seen twice", 0)
	write("routes: []")
	g.look()
	g.look()
	g.look()
	wantRoutes("with an empty file", 1)
	expect.MustEqual(t, "the error of removing the file", os.Remove(g.file.path), nil)
	if err := g.Reload(); err == nil {
		t.Error("Reload without a file: got no error")
	}
	write("routes:\n  - match: POST /a\n  - match: POST /b\n")
	g.look()
	g.look()
	wantRoutes("with the file back", 0)
}

func TestRequestUnderWayKeepsItsRoute(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-proceed
		w.WriteHeader(http.StatusCreated)
	})
	r := start(t, upstream.URL, payments)
	told := make(chan answer, 1)
	go func() { told <- r.do("POST", "/payments", "x", "Idempotency-Key: a") }()
	<-begun
	r.write("routes: [{match: POST /orders}]")
	expect.Error(t, "Reload", r.g.Reload(), nil)
	close(proceed)
	r.wantStatus(<-told, 201)
	r.write(payments)
	expect.Error(t, "Reload", r.g.Reload(), nil)
	r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a"), "", true)
}

func TestNewTellsWhatIsWrong(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	upstream, err := ParseUpstream("http://h")
	expect.MustEqual(t, "the error of ParseUpstream", err, nil)
	r := &rig{t: t, file: t.TempDir() + "/r.yaml"}
	r.write("routes: [{match: /a, ack: 1}]")
	for name, config := range map[string]Config{
		"no replicas":   {Store: store, Upstream: upstream, RoutesFile: r.file},
		"no such file":  {Store: store, Upstream: upstream, RoutesFile: r.file + "x"},
		"upstream":      {Store: store, RoutesFile: r.file},
		"a store":       {Upstream: upstream, RoutesFile: r.file},
		"is a director": {Store: store, Upstream: upstream, RoutesFile: t.TempDir()},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("New: got error %v, want it to say %q", err, name)
		}
	}
}
