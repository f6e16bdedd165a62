package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// about is what there is, a line each.
const about = `coatcheck: what must not be handed out twice, on Redis

/token   one-use tokens: an operation begins once, and who repeats it gets its answer
/incr    counters whose values nobody gets twice; /counter reads, sets and lists them
/id      ids: Snowflake, from segments, UUIDs
/worker  worker ids, leased for a window of time
/lock    locks with a fence, and a queue
`

// index tells a person who opens the service what there is.
func (s *Server) index(c echo.Context) error {
	var lines []string
	for _, route := range c.Echo().Routes() {
		lines = append(lines, fmt.Sprintf("%-32s %s", braces(route.Path), route.Method))
	}
	slices.Sort(lines)
	return c.String(http.StatusOK, about+"\n"+strings.Join(lines, "\n")+"\n")
}

// live says that the process answers. It asks nobody else.
func (s *Server) live(c echo.Context) error {
	fresh(c)
	return c.JSON(http.StatusOK, map[string]string{"status": "ok"})
}

// ready says whether this process should get requests: it is not stopping, and the store answers and takes writes.
func (s *Server) ready(c echo.Context) error {
	readiness := wire.Readiness{Store: string(s.store.Mode()), Ack: s.store.Ack(), Workers: s.stampingWorkers()}
	readiness.Incarnation, readiness.Reason = s.check(c.Request().Context())
	readiness.Ready = readiness.Reason == ""
	fresh(c)
	if !readiness.Ready {
		return c.JSON(http.StatusServiceUnavailable, readiness)
	}
	return c.JSON(http.StatusOK, readiness)
}

// stampingWorkers lists the worker ids that this process stamps with, or would.
func (s *Server) stampingWorkers() (list []wire.StampingWorker) {
	for _, status := range s.stamper.Status() {
		worker := wire.StampingWorker{Pool: status.Pool, State: "waiting", NotAfter: status.NotAfter}
		switch {
		case status.Held:
			worker.State, worker.WorkerID = "held", &status.WorkerID
		case status.Err != nil:
			worker.Reason = problemOf(status.Err).Detail
		}
		list = append(list, worker)
	}
	return list
}

// check asks every master, and writes the incarnation's marker: only a write tells whether the store takes writes.
func (s *Server) check(ctx context.Context) (incarnation, reason string) {
	if s.stopping.Load() {
		return "", "stopping"
	}
	if err := s.store.Ping(ctx); err != nil {
		return "", problemOf(err).Title
	}
	found, err := s.store.Incarnation(ctx)
	if shortfall, ok := errors.AsType[*redisstore.Shortfall](err); ok {
		return "", "writes are " + shortfall.Error()
	}
	if err != nil {
		return "", problemOf(err).Title
	}
	if s.life.changed(found) {
		s.feed.tell(wire.Event{Kind: storeChanged})
		s.metrics.MarkerChanged()
		s.log.WarnContext(ctx, "the store is another incarnation: a failover, or a restart without its last data; writes that it had confirmed may be missing",
			"incarnation", found.ID)
	}
	return found.ID, ""
}

// incarnations remembers which life of the store this process has seen.
type incarnations struct {
	mu   sync.Mutex
	last string
}

// changed tells whether the store has begun another life, or lost all of its state, since this process looked, or since the state in it was written. It
// compares with what this process knows as well, since the answer that told of a change may have been lost.
func (i *incarnations) changed(found redisstore.Incarnation) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed := found.Change == redisstore.Changed || i.last != "" && (i.last != found.ID || found.Change == redisstore.New)
	i.last = found.ID
	return changed
}

// problem is the page behind a problem's type.
func (s *Server) problem(c echo.Context) error {
	page, ok := wire.Page(wire.Code(c.Param("code")))
	if !ok {
		return echo.ErrNotFound
	}
	return c.HTML(http.StatusOK, page)
}

// pattern is braces of a route's path.
func (s *Server) pattern(path string) string {
	if known, ok := s.patterns[path]; ok {
		return known
	}
	return braces(path)
}

// braces writes Echo's /token/:token as /token/{token}.
func braces(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if name, ok := strings.CutPrefix(segment, ":"); ok {
			segments[i] = "{" + name + "}"
		}
	}
	return strings.Join(segments, "/")
}
