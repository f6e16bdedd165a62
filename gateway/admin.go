package gateway

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Admin is the gateway's own side, for a listener that clients do not reach: /livez, /readyz and /metrics, and what [Config].Debug has at /debug/.
func (g *Gateway) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", g.ready)
	mux.Handle("GET /metrics", g.metrics.Handler())
	if g.config.Debug != nil {
		mux.Handle("/debug/", g.config.Debug)
	}
	return mux
}

// Readiness answers GET /readyz.
type Readiness struct {
	Ready       bool   `json:"ready"`
	Store       string `json:"store"` // embedded, standalone, sentinel or cluster
	Ack         int    `json:"ack"`
	Incarnation string `json:"incarnation,omitempty"`
	Reason      string `json:"reason,omitempty"` // why it is not ready

	Routes       int       `json:"routes"`                  // guarded routes in force
	Version      string    `json:"routes_version"`          // of the file that they were read from
	LoadedAt     time.Time `json:"routes_loaded_at"`        // when they were read
	RoutesFaults []string  `json:"routes_faults,omitempty"` // of the file as it is now: why it is not in force
}

// ready says whether this process should get requests: it is not stopping, and the store answers and takes writes. It does not ask the upstream, which has
// health checks of its own; and a routes file that is wrong now leaves the routes before it in force.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	routes := g.routes.Load()
	readiness := Readiness{
		Store: string(g.store.Mode()), Ack: g.store.Ack(),
		Routes: len(routes.routes), Version: routes.version, LoadedAt: routes.loaded.UTC(), RoutesFaults: g.file.faults(),
	}
	readiness.Incarnation, readiness.Reason = g.check(r.Context())
	readiness.Ready = readiness.Reason == ""
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if !readiness.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, readiness)
}

// check asks every master, and writes the incarnation's marker: only a write tells whether the store takes writes.
func (g *Gateway) check(ctx context.Context) (incarnation, reason string) {
	if g.stopping.Load() {
		return "", "stopping"
	}
	if err := g.store.Ping(ctx); err != nil {
		return "", titleOf(err)
	}
	found, err := g.store.Incarnation(ctx)
	if shortfall, ok := errors.AsType[*redisstore.Shortfall](err); ok {
		return "", "writes are " + shortfall.Error()
	}
	if err != nil {
		return "", titleOf(err)
	}
	if g.life.changed(found) {
		g.metrics.MarkerChanged()
		g.log.WarnContext(ctx, "the store is another incarnation: a failover, or a restart without its last data; claims that it had confirmed may be missing",
			"incarnation", found.ID)
	}
	return found.ID, ""
}

func titleOf(err error) string {
	problem, _ := idempotency.Problem(err)
	return problem.Title
}

// incarnations remembers which life of the store this process has seen.
type incarnations struct {
	mu   sync.Mutex
	last string
}

// changed tells whether the store has begun another life, or lost its state, since this process looked or since the state in it was written.
func (i *incarnations) changed(found redisstore.Incarnation) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := found.Change == redisstore.Changed || i.last != "" && (i.last != found.ID || found.Change == redisstore.New)
	i.last = found.ID
	return changed
}
