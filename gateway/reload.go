package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// routesFile is what is known of the file on disk.
type routesFile struct {
	path string

	mu      sync.Mutex
	tried   string   // version that was read last, well or badly
	seen    string   // version that the watch saw last
	wrong   []string // faults of the last reading; none = the routes in force are those of the file
	readErr string   // of the last look, so that it is told once
}

// Reload reads the routes file again and puts its routes in force, all at once: requests under way
// keep the route that they began with. If the file is wrong the routes in force stay, and the error
// tells every fault.
func (g *Gateway) Reload() error {
	g.file.mu.Lock()
	defer g.file.mu.Unlock()
	text, err := readFile(g.file.path)
	if err != nil {
		g.file.seen, g.file.readErr = "", err.Error()
		return g.keepLocked("", err)
	}
	return g.loadLocked(text)
}

// ReloadFrom is Reload with another file, which is the gateway's from then on unless it is wrong.
func (g *Gateway) ReloadFrom(path string) error {
	g.file.mu.Lock()
	defer g.file.mu.Unlock()
	before := g.file.path
	g.file.path = path
	text, err := readFile(path)
	if err == nil {
		err = g.loadLocked(text)
	} else {
		err = g.keepLocked("", err)
	}
	if err != nil {
		g.file.path, g.file.tried = before, ""
	}
	return err
}

func (g *Gateway) loadLocked(text []byte) error {
	version := versionOf(text)
	g.file.tried, g.file.readErr = version, ""
	routes, err := ParseRoutes(text)
	if err == nil {
		err = fitting(routes, g.store)
	}
	if err != nil {
		return g.keepLocked(version, err)
	}
	var before Routes
	if old := g.routes.Load(); old != nil {
		before = old.routes
	}
	table := g.newTable(routes, version)
	g.routes.Store(table)
	g.warnOfStop(table.longest)
	g.file.wrong = nil
	g.metrics.reloads.WithLabelValues("ok").Inc()
	g.metrics.use(routes, before)
	g.log.Info("routes are in force", "routes", len(routes), "version", version)
	return nil
}

// keepLocked keeps the routes in force, and tells why.
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

// fitting finds what the routes ask for that this store does not have.
func fitting(routes Routes, store *redisstore.Store) error {
	var found faults
	for _, route := range routes {
		if route.Ack > 0 && store.Mode() == redisstore.Embedded {
			found.addf(route.line, "ack: the embedded store has no replicas")
		}
	}
	return join(found)
}

// watch looks at the routes file every so often, until the context ends. It waits until the content
// is the same at two looks, so that a file that is just being written is not taken for a shorter
// one.
func (g *Gateway) watch(ctx context.Context) {
	tick := time.NewTicker(g.config.WatchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		g.look()
	}
}

// look reads the file once and puts its routes in force if they are new and stand still.
func (g *Gateway) look() {
	g.file.mu.Lock()
	defer g.file.mu.Unlock()
	text, err := readFile(g.file.path)
	if err != nil {
		g.missedLocked(err)
		return
	}
	version := versionOf(text)
	still := version == g.file.seen
	g.file.seen = version
	if still && (version != g.file.tried || g.file.readErr != "") {
		_ = g.loadLocked(text) // it is logged, counted, and shown by /readyz
	}
}

// missedLocked tells once that the file cannot be read.
func (g *Gateway) missedLocked(err error) {
	g.file.seen = ""
	if err.Error() != g.file.readErr {
		g.file.readErr = err.Error()
		_ = g.keepLocked("", err) // it is logged, counted, and shown by /readyz
	}
}

// faults are those of the last reading of the file.
func (f *routesFile) faults() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wrong
}

// readFile reads the routes file, but not one that cannot be one.
func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = errors.New("too large for a routes file")
	}
	return text, err
}

// versionOf names a file's content.
func versionOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
