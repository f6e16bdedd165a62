package server

import (
	"errors"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/server/internal/events"
	"github.com/coatcheck/coatcheck/workerlease"
)

const eventsPath = "/events"

// isStream reports whether a route's answer goes on until its client leaves.
func isStream(c echo.Context) bool { return c.Path() == eventsPath }

// feed is the handler of /events.
type feed struct {
	events    *events.Log
	admission *admission
	stopping  <-chan struct{}
}

// follow sends what happens in this process as server-sent events.
func (h *feed) follow(r *request) error {
	backlog := r.int("backlog", 0, 0, events.Kept)
	if r.err != nil {
		return r.err
	}
	c := r.Context
	return h.events.Serve(c.Response(), c.Request(), events.Subscriber{
		Reader:   caller(c),
		Backlog:  backlog,
		Stopping: h.stopping,
		Renew: func() (access.Caller, bool) {
			reader, err := h.admission.identify(c, clients{})
			return reader, err == nil && reader.May(access.Read)
		},
	})
}

// refusalEvents are the errors of requests that are events, and the parameter with the name.
var refusalEvents = []struct {
	err   error
	kind  string
	param string // "" = it is about no name
}{
	{counter.ErrBehind, events.CounterInDoubt, "key"},
	{counter.ErrHoldOff, events.CounterInDoubt, "key"},
	{workerlease.ErrLost, events.WorkerLost, "pool"},
	{workerlease.ErrQuarantined, events.PoolQuarantined, "pool"},
	{workerlease.ErrExhausted, events.PoolExhausted, "pool"},
	{lock.ErrLost, events.LockLost, "name"},
	{lock.ErrInDoubt, events.LockQuarantined, "name"},
	{idempotency.ErrInDoubt, events.OperationInDoubt, ""},
}

func (j *journal) addRefusal(c echo.Context, refusal error) {
	for _, known := range refusalEvents {
		if !errors.Is(refusal, known.err) {
			continue
		}
		event := api.Event{Kind: known.kind}
		if known.kind == events.PoolQuarantined || known.kind == events.CounterInDoubt || known.kind == events.LockQuarantined {
			event.Reason = detail(refusal, known.err)
			_, event.New = errors.AsType[*workerlease.NewPoolError](refusal)
		}
		if known.param != "" {
			// a route without one is of this server's own pool
			event.Name, _ = nameOf(c, known.param)
		}
		if id, err := strconv.Atoi(c.Param("worker_id")); err == nil {
			event.WorkerID = &id
		}
		j.events.AddOnce(event)
		return
	}
}
