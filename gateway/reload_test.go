package gateway

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

func soon(c *Config) { c.WatchEvery = 5 * time.Millisecond }

func TestChangedRoutesFileIsPutInForce(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, soon)
	if a := s.do("POST", "/orders", "x"); a.status != 201 {
		t.Errorf("%d", a.status)
	}
	s.write("routes: [{match: POST /orders, accept: token}]")
	eventually(t, "the new route guards", func() bool { return s.do("POST", "/orders", "x").problem().Code == wire.KeyMissing })
	if a := s.do("POST", "/payments", "x"); a.status != 201 {
		t.Errorf("the old route: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/idempotency-policy", ""); !strings.Contains(a.body, "POST /orders") || strings.Contains(a.body, "/payments") {
		t.Errorf("%s", a.body)
	}
	_, body := s.side("/metrics")
	if strings.Contains(body, `route="POST /payments"`) || !strings.Contains(body, "coatcheck_gateway_routes 1\n") || !strings.Contains(body, `coatcheck_gateway_reloads_total{result="ok"} 2`) {
		t.Errorf("%s", body)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

func TestWrongRoutesFileKeepsTheRoutesBeforeIt(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, soon)
	_, before := s.readiness()
	s.write("routes: [{match: POST /orders, lease_ms: 1, colour: red}]")
	eventually(t, "the faults are told", func() bool { _, ready := s.readiness(); return len(ready.RoutesFaults) == 2 })
	status, now := s.readiness()
	if status != 200 || !now.Ready || now.Version != before.Version || now.Routes != 1 {
		t.Errorf("%d %+v", status, now)
	}
	s.wantCode(s.do("POST", "/payments", "x"), wire.KeyMissing)
	if err := s.g.Reload(); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(s.file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the missing file is told", func() bool {
		_, ready := s.readiness()
		return len(ready.RoutesFaults) == 1 && strings.Contains(ready.RoutesFaults[0], "no such file")
	})
	if _, body := s.side("/metrics"); !strings.Contains(body, `coatcheck_gateway_reloads_total{result="failed"} 3`) {
		t.Errorf("%s", body)
	}
	s.write(payments)
	eventually(t, "all is well", func() bool { _, ready := s.readiness(); return len(ready.RoutesFaults) == 0 })
	for _, fault := range []string{"colour: unknown field", "lease_ms: a whole number", "no such file"} {
		if !strings.Contains(s.log.String(), fault) {
			t.Errorf("the log does not say %q:\n%s", fault, s.log)
		}
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// A file that is being written looks like a shorter one: it is taken only when it stands still.
func TestFileThatIsBeingWrittenIsNotTaken(t *testing.T) {
	g := unconnected(t)
	version := g.routes.Load().version
	write := func(text string) {
		if err := os.WriteFile(g.file.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("routes:\n  - match: POST /a\n")
	g.look()
	write("routes:\n  - match: POST /a\n  - match: POST /b\n")
	g.look()
	if g.routes.Load().version != version {
		t.Error("a version that was seen once is in force")
	}
	g.look()
	if n := len(g.routes.Load().routes); n != 2 {
		t.Errorf("%d routes", n)
	}
	write("routes: []")
	g.look()
	g.look()
	g.look()
	if n := len(g.routes.Load().routes); n != 2 || len(g.file.faults()) != 1 {
		t.Errorf("%d routes, %v", n, g.file.faults())
	}
	if err := os.Remove(g.file.path); err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(); err == nil {
		t.Error("a missing file was read")
	}
	write("routes:\n  - match: POST /a\n  - match: POST /b\n")
	g.look()
	g.look()
	if n := len(g.routes.Load().routes); n != 2 || len(g.file.faults()) != 0 {
		t.Errorf("%d routes, %v", n, g.file.faults())
	}
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
	if err := r.g.Reload(); err != nil {
		t.Fatal(err)
	}
	close(proceed)
	if a := <-told; a.status != 201 {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.write(payments)
	if err := r.g.Reload(); err != nil {
		t.Fatal(err)
	}
	r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a"), "", true)
}

func TestNewTellsWhatIsWrong(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	upstream, err := ParseUpstream("http://h")
	if err != nil {
		t.Fatal(err)
	}
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
			t.Errorf("%s: %v", name, err)
		}
	}
}
