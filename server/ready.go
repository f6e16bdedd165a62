package server

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/version"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/events"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/workerlease"
)

// probes is the handler of /readyz.
type probes struct {
	when      ReadyWhen
	identity  string // under which this server leases worker ids
	log       *slog.Logger
	admission *admission
	store     *redisstore.Store
	health    *health.Checker
	pools     *workerlease.Pools
	stamper   *stamper.Stamper
	outdone   outdone
}

func (s *Server) checker() *health.Checker {
	return health.New(health.Config{
		Store: s.store, Logger: s.log, Stopping: &s.draining.Stopping,
		Title: func(err error) string { return problemOf(err).Title },
		Changed: func(ctx context.Context, found health.Incarnation) {
			s.events.Add(api.Event{Kind: events.StoreChanged})
			s.metrics.MarkerChanged()
			s.log.WarnContext(ctx, "the store is another incarnation: a failover, or a restart without its last data; writes that "+
				"it had confirmed may be missing",
				"incarnation", found.ID)
		},
	})
}

// ready reports whether this process should get requests: it is not stopping, the store answers and
// takes writes, and no other process can stamp ids that this one should and cannot: see
// [ReadyWithIDs]. Every caller gets that and the number of worker ids; callers that may read also
// get the pools and the store's incarnation.
func (h *probes) ready(r *request) error {
	found := h.health.Check(r.ctx())
	readiness := api.Readiness{Ready: found.Reason == "", Store: string(h.store.Mode()), Ack: found.Continuity.Acks, Reason: found.Class}
	if !readiness.Ready {
		readiness.Ack = max(h.store.Ack(), 0) // what it asks for
	}
	if readiness.Ready && h.when != ReadyWithStore {
		if reason := h.withoutIDs(r.ctx()); reason != "" {
			readiness.Ready, readiness.Reason, found.Reason = false, reason, reason
		}
	}
	workers := stampingWorkers(h.stamper)
	readiness.WorkerIDs = countOf(workers)
	if names, mayRead := h.reader(r.Request()); mayRead {
		readiness.Incarnation, readiness.Reason = found.Incarnation, found.Reason
		if !found.Since.IsZero() {
			readiness.Address, readiness.Since = h.store.Address(), api.At(found.Since.UTC())
		}
		if found.Reason == "" {
			readiness.Continues = &api.Continues{Failover: found.Continuity.Promotion, Restart: found.Continuity.Restart}
		}
		for _, worker := range workers {
			if names.Allow(worker.Pool) {
				readiness.Workers = append(readiness.Workers, worker)
			}
		}
	}
	if !readiness.Ready {
		return r.answer(http.StatusServiceUnavailable, readiness)
	}
	return r.answer(http.StatusOK, readiness)
}

// reader returns a filter of the pools that a caller may see. It treats a wrong key as none and
// does not refuse it: a probe must not find the service unready because its key has expired.
func (h *probes) reader(request *http.Request) (names access.Names, mayRead bool) {
	if h.admission.policy == nil || isAdminSide(request.Context()) {
		if health.FromThisMachine(request) {
			return nil, true
		}
	}
	who := h.admission.recognized(request)
	return who.Names, who.May(access.Read)
}

// stampingWorkers lists the worker ids that this process stamps with, or would.
func stampingWorkers(stamper *stamper.Stamper) (list []api.StampingWorker) {
	for _, status := range stamper.Status() {
		worker := api.StampingWorker{Pool: status.Pool, State: "waiting", NotAfter: api.At(status.NotAfter), Configured: status.Kept}
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
func countOf(workers []api.StampingWorker) *api.WorkerCount {
	if len(workers) == 0 {
		return nil
	}
	count := &api.WorkerCount{}
	for _, worker := range workers {
		if worker.WorkerID != nil {
			count.Held++
		} else {
			count.Waiting++
		}
	}
	return count
}

// showLive answers that the process runs, and which version. It asks no server.
func showLive(c echo.Context) error {
	noStore(c)
	return c.JSON(http.StatusOK, map[string]string{"status": "ok", "version": version.Version})
}
