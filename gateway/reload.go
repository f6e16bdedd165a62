package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/watch"
	"github.com/coatcheck/coatcheck/internal/yamlfile"
	"github.com/coatcheck/coatcheck/redisstore"
)

// routesFile is the state of the file on disk.
type routesFile struct {
	path string

	mu    sync.Mutex
	seen  watch.Seen
	wrong []string // faults of the last reading; none = the routes in force are those of the file

	verifiers verifiers // of the routes in force
}

// Reload reads the routes file again and puts its routes in force, all at once: requests under way
// keep their route. If the file is wrong the routes in force stay, and the error lists every fault.
func (g *Gateway) Reload() error { return g.ReloadFrom("") }

// ReloadFrom is Reload with another file, which stays the gateway's unless wrong; "" = the same.
func (g *Gateway) ReloadFrom(path string) error {
	g.file.mu.Lock()
	defer g.file.mu.Unlock()
	before, seen := g.file.path, g.file.seen
	g.file.path = cmp.Or(path, before)
	text, version, err := watch.Read(g.file.path, maxFile)
	g.file.seen.Take(version, err)
	err = g.takeLocked(text, version, err)
	if err != nil && path != "" {
		g.file.path, g.file.seen = before, seen
	}
	return err
}

// look puts the routes of the file in force if they are new.
func (g *Gateway) look() {
	g.file.mu.Lock()
	defer g.file.mu.Unlock()
	text, version, err := watch.Read(g.file.path, maxFile)
	if g.file.seen.Look(version, err) {
		_ = g.takeLocked(text, version, err) // it is logged, counted, and shown by /readyz
	}
}

// takeLocked puts the new routes in force, or keeps the old ones and logs why.
func (g *Gateway) takeLocked(text []byte, version string, err error) error {
	var routes Routes
	if err == nil {
		routes, err = ParseRoutes(text)
	}
	if err == nil {
		err = errors.Join(routes.fitting(g.store), routes.CheckHosts(g.config.PreserveHost, g.allowedHosts()))
	}
	var verifiers verifiers
	if err == nil {
		verifiers, err = g.file.verifiers.of(routes, func(c *jwtprincipal.Config) { c.Logger = g.log })
	}
	if err != nil {
		return g.keepLocked(version, err)
	}
	for key, one := range verifiers {
		if g.file.verifiers[key] == nil {
			// the log says at once if there are no keys: requests are refused until there are
			g.loading.Go(func() { _ = one.Load(context.Background()) })
		}
	}
	g.file.verifiers = verifiers
	var before Routes
	if old := g.routes.Load(); old != nil {
		before = old.routes
	}
	table, err := g.newTable(routes, version)
	if err != nil {
		return g.keepLocked(version, err)
	}
	step.At("gateway: made the routes")
	g.routes.Store(table)
	g.warnOfStop(table.longest)
	g.file.wrong = nil
	g.metrics.reloads.WithLabelValues("ok").Inc()
	g.metrics.use(routes, before)
	g.log.Info("routes are in force", "routes", len(routes.List), "unmatched", routes.Unmatched(), "version", version)
	return nil
}

// keepLocked keeps the routes in force, and logs why.
func (g *Gateway) keepLocked(version string, err error) error {
	g.metrics.reloads.WithLabelValues("failed").Inc()
	g.file.wrong = strings.Split(err.Error(), "\n")
	if g.routes.Load() != nil {
		for _, fault := range g.file.wrong {
			g.log.Error("the routes file has a fault; the routes before it stay in force", "fault", fault, "version", version)
		}
	}
	return fmt.Errorf("%s: %w", g.file.path, err)
}

// fitting finds the faults of routes that ask for more than this store has.
func (r Routes) fitting(store *redisstore.Store) error {
	var found yamlfile.Faults
	for _, route := range r.List {
		if route.Ack > 0 && store.Mode() == redisstore.ModeEmbedded {
			found.Addf(route.line, "ack: the embedded store has no replicas")
		}
	}
	return found.Err("")
}

// faults are those of the last reading of the file.
func (f *routesFile) faults() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrong
}
