//go:build steps

package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
)

// Two tables of routes. Both guard POST /payments, by patterns of their own.
const (
	oneTable   = `routes: [{match: POST /payments, lease_ms: 1000, upstream_timeout_ms: 500}]`
	otherTable = `routes: [{match: "POST /{kind}", lease_ms: 1000, upstream_timeout_ms: 500}, {match: "PUT /{kind}"}]`
)

// reloading is a gateway whose routes change while requests with one key are under way.
type reloading struct {
	t       *testing.T
	gateway *Gateway
	file    string

	mu       sync.Mutex
	starts   map[string]int // runs of the service, by method
	statuses []int
	bodies   []string
}

func newReloading(t *testing.T) *reloading {
	t.Helper()
	store, _ := storetest.Stepped(t)
	r := &reloading{t: t, file: filepath.Join(t.TempDir(), "routes.yaml"), starts: map[string]int{}}
	r.write(oneTable)
	upstream, err := ParseUpstream("http://service.example")
	if err != nil {
		t.Fatalf("the upstream: %v", err)
	}
	if r.gateway, err = New(Config{Store: store, Upstream: upstream, RoutesFile: r.file}); err != nil {
		t.Fatalf("the gateway: %v", err)
	}
	r.gateway.once.Transport, r.gateway.open.Transport = stepped{r, true}, stepped{r, false}
	return r
}

func (r *reloading) write(routes string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(routes), 0o600); err != nil {
		r.t.Fatalf("the routes file: %v", err)
	}
}

// stepped is the upstream, without a network.
type stepped struct {
	*reloading

	guarded bool
}

func (s stepped) RoundTrip(request *http.Request) (*http.Response, error) {
	step.At("service: begins")
	s.mu.Lock()
	defer s.mu.Unlock()
	key := request.Method
	if !s.guarded {
		key = "unguarded " + key
	}
	s.starts[key]++
	return &http.Response{
		StatusCode: http.StatusCreated, Header: http.Header{}, Request: request, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(fmt.Sprint("run ", s.starts[key]))),
	}, nil
}

// request sends a payment with the key that all have.
func (r *reloading) request() walk.Task {
	return walk.Task{Name: "request", Do: func() {
		request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/payments", strings.NewReader("{}"))
		request.Header.Set("Idempotency-Key", "k")
		answer := httptest.NewRecorder()
		r.gateway.ServeHTTP(answer, request)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.statuses, r.bodies = append(r.statuses, answer.Code), append(r.bodies, answer.Body.String())
	}}
}

// reload puts tables in force, one after another.
func (r *reloading) reload(tables ...string) walk.Task {
	return walk.Task{Name: "reload", Do: func() {
		for _, routes := range tables {
			r.write(routes)
			if err := r.gateway.Reload(); err != nil {
				r.t.Errorf("reloading: %v", err)
			}
		}
	}}
}

// check returns what does not hold. The name of an operation has the route's pattern in it, so each
// table may run the service once, and no more; nothing passes unguarded between two tables.
func (r *reloading) check(most int) func() error {
	return func() error {
		for what, n := range r.starts {
			if what != http.MethodPost || n > most {
				return fmt.Errorf("%q ran %d times, want POST alone, %d times at most", what, n, most)
			}
		}
		for i, status := range r.statuses {
			if status == http.StatusCreated && !strings.HasPrefix(r.bodies[i], "run ") || status != http.StatusCreated && status != http.StatusConflict {
				return fmt.Errorf("status %d with %q", status, r.bodies[i])
			}
		}
		return nil
	}
}

func (r *reloading) play(most int, tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: r.check(most), Close: func() {
		if err := r.gateway.Close(context.Background()); err != nil {
			r.t.Errorf("closing the gateway: %v", err)
		}
	}}
}

func TestWalkEveryOrderOfAReload(t *testing.T) {
	for name, row := range map[string]struct {
		table string
		most  int
	}{"the same table": {oneTable + " # again", 1}, "another table": {otherTable, 2}} {
		t.Run(name, func(t *testing.T) {
			walk.Every(t, walk.Scene{Preemptions: 2, Begin: func(t *testing.T) walk.Play {
				r := newReloading(t)
				return r.play(row.most, r.request(), r.request(), r.reload(row.table))
			}})
		})
	}
}

func TestWalkRandomOrdersOfAReload(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: 300 * time.Millisecond, Begin: func(t *testing.T) walk.Play {
		r := newReloading(t)
		return r.play(2, r.request(), r.request(), r.request(), r.reload(otherTable, oneTable))
	}})
}
