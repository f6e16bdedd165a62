package server

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// checker asks the store for /readyz.
func (s *Server) checker() *health.Checker {
	return health.New(health.Config{
		Store: s.store, Logger: s.log,
		Title: func(err error) string { return problemOf(err).Title },
		Changed: func(ctx context.Context, found health.Incarnation) {
			s.events.Add(wire.Event{Kind: events.StoreChanged})
			s.metrics.MarkerChanged()
			s.log.WarnContext(ctx, "the store is another incarnation: a failover, or a restart without its last data; writes that it had confirmed may be missing",
				"incarnation", found.ID)
		},
	})
}

// ready says whether this process should get requests: it is not stopping, the store answers and
// takes writes, and no other process can stamp ids that this one should and cannot: see
// [ReadyWithIDs]. Everybody hears that, and how many worker ids there are; the pools, and what
// tells one store from another, hear those who may read.
func (s *Server) ready(c echo.Context) error {
	store := health.Stopping()
	if !s.draining.Stopping.Load() {
		store = s.health.Check(c.Request().Context())
	}
	readiness := wire.Readiness{Ready: store.Reason == "", Store: string(s.store.Mode()), Ack: s.store.Ack(), Reason: store.Class}
	if readiness.Ready && s.config.ReadyWhen != ReadyWithStore && s.isOutdone(c.Request().Context()) {
		readiness.Ready, readiness.Reason, store.Reason = false, cannotStamp, cannotStamp
	}
	workers := s.stampingWorkers()
	readiness.WorkerIDs = countOf(workers)
	if names, mayRead := s.healthReader(c.Request()); mayRead {
		readiness.Incarnation, readiness.Reason = store.Incarnation, store.Reason
		for _, worker := range workers {
			if names.Allow(worker.Pool) {
				readiness.Workers = append(readiness.Workers, worker)
			}
		}
	}
	noStore(c)
	if !readiness.Ready {
		return c.JSON(http.StatusServiceUnavailable, readiness)
	}
	return c.JSON(http.StatusOK, readiness)
}

// healthReader returns which pools a caller may be told of. A wrong key makes it a stranger and is
// not refused: a probe must not find the service unready because its key has ended.
func (s *Server) healthReader(request *http.Request) (names access.Names, mayRead bool) {
	if s.config.Access == nil || isAdminSide(request.Context()) {
		if health.FromThisMachine(request) {
			return nil, true
		}
	}
	who := s.recognized(request)
	return who.Names, who.May(access.Read)
}

// stampingWorkers lists the worker ids that this process stamps with, or would.
func (s *Server) stampingWorkers() (list []wire.StampingWorker) {
	for _, status := range s.stamper.Status() {
		worker := wire.StampingWorker{Pool: status.Pool, State: "waiting", NotAfter: status.NotAfter, Configured: status.Kept}
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

// countOf counts worker ids by their state; nil if there are none.
func countOf(workers []wire.StampingWorker) *wire.WorkerCount {
	if len(workers) == 0 {
		return nil
	}
	count := &wire.WorkerCount{}
	for _, worker := range workers {
		if worker.WorkerID != nil {
			count.Held++
		} else {
			count.Waiting++
		}
	}
	return count
}
