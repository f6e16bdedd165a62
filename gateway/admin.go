package gateway

import (
	"context"
	"net/http"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/version"
)

// Admin is the gateway's own side, for a listener that clients do not reach: /livez, /readyz and
// /metrics, and what [Config].Debug has at /debug/. It refuses what a page may have had a browser
// send, as [Config].AllowedHosts says.
func (g *Gateway) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "version": version.Version})
	})
	mux.HandleFunc("GET /readyz", g.ready)
	mux.Handle("GET /metrics", g.metrics.Handler())
	if g.config.Debug != nil {
		mux.Handle("/debug/", g.config.Debug)
	}
	return g.logged(frontdoor.ForOperators(g.allowedHosts, mux))
}

// Readiness answers GET /readyz.
type Readiness struct {
	Ready       bool   `json:"ready"`
	Store       string `json:"store"` // embedded, standalone, sentinel or cluster
	Ack         int    `json:"ack"`
	Incarnation string `json:"incarnation,omitempty"` // on this machine alone
	// why it is not ready; on this machine with figures
	Reason string `json:"reason,omitempty"`
	// where the store is that does not work, and when that was first seen; on this machine alone
	Address string   `json:"address,omitempty"`
	Since   api.Time `json:"since,omitzero"`

	Routes    int    `json:"routes"`           // guarded routes in force
	Unmatched string `json:"unmatched"`        // refuse or pass: what no route names
	Unguarded int    `json:"unguarded_routes"` // patterns of unsafe requests with guard: false
	// those of them that match more than one path: how many, and on this machine alone which
	UnguardedWideCount int      `json:"unguarded_wide_count"`
	UnguardedWide      []string `json:"unguarded_wide,omitempty"`
	LoadedAt           api.Time `json:"routes_loaded_at"` // when they were read
	// faults of the file as it is now: why it is not in force
	FaultCount int `json:"routes_fault_count,omitempty"`
	// of the file that the routes were read from; on this machine alone
	Version string `json:"routes_version,omitempty"`
	// those faults; on this machine alone
	RoutesFaults []string `json:"routes_faults,omitempty"`
}

// ready reports whether this process should get requests: it is not stopping, and the store answers
// and takes writes. It does not ask the upstream, which has health checks of its own; and a faulty
// routes file leaves the earlier routes in force. Callers on this machine get the file's faults,
// others only their number.
func (g *Gateway) ready(w http.ResponseWriter, r *http.Request) {
	store := g.health.Check(r.Context())
	routes, faults := g.routes.Load(), g.file.faults()
	readiness := Readiness{
		Ready: store.Reason == "", Store: string(g.store.Mode()), Ack: store.Continuity.Acks, Reason: store.Class,
		Routes: len(routes.routes.Guarded()), Unmatched: routes.routes.Unmatched(), LoadedAt: api.At(routes.loaded.UTC()),
		FaultCount: len(faults),
	}
	all, wide := routes.routes.Unguarded()
	readiness.Unguarded, readiness.UnguardedWideCount = len(all), len(wide)
	if !readiness.Ready {
		readiness.Ack = max(g.store.Ack(), 0) // what it asks for
	}
	if health.FromThisMachine(r) {
		readiness.Incarnation, readiness.Reason = store.Incarnation, store.Reason
		if !store.Since.IsZero() {
			readiness.Address, readiness.Since = g.store.Address(), api.At(store.Since.UTC())
		}
		readiness.Version, readiness.RoutesFaults, readiness.UnguardedWide = routes.version, faults, wide
	}
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	if !readiness.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, readiness)
}

func (g *Gateway) checker() *health.Checker {
	return health.New(health.Config{
		Store: g.store, Logger: g.log, Stopping: &g.draining.Stopping,
		Title: func(err error) string {
			problem, _ := idempotency.Problem(err)
			return problem.Title
		},
		Changed: func(ctx context.Context, found health.Incarnation) {
			g.metrics.MarkerChanged()
			g.log.WarnContext(ctx, "the store is another incarnation: a failover, or a restart without its last data; claims that it "+
				"had confirmed may be missing",
				"incarnation", found.ID)
		},
	})
}
