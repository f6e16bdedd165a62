package server

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/events"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/workerlease"
)

const eventsPath = "/events"

// isStream reports whether a route's answer has no end of its own.
func isStream(c echo.Context) bool { return c.Path() == eventsPath }

// followEvents sends what happens in this process as server-sent events.
func (s *Server) followEvents(c echo.Context) error {
	return s.events.Serve(c.Response(), c.Request(), events.Subscriber{
		Reader:   caller(c),
		Stopping: s.waits.over,
		Renew: func() (access.Caller, bool) {
			reader, err := s.identify(c, clients{})
			return reader, err == nil && reader.May(access.Read)
		},
	})
}

// refusalEvents says which errors of requests are events, and where in the route the name is that
// they are about.
var refusalEvents = []struct {
	err   error
	kind  string
	param string // "" = it is about no name
}{
	{counter.ErrBehind, events.CounterInDoubt, "key"},
	{counter.ErrHoldOff, events.CounterInDoubt, "key"},
	{workerlease.ErrLost, events.WorkerLost, "pool"},
	{workerlease.ErrQuarantined, events.WorkerQuarantined, "pool"},
	{workerlease.ErrExhausted, events.WorkerExhausted, "pool"},
	{lock.ErrLost, events.LockLost, "name"},
	{lock.ErrInDoubt, events.LockQuarantined, "name"},
	{idempotency.ErrInDoubt, events.TokenInDoubt, ""},
}

// recordRefusal notes what requests were refused for that is more than one client's business.
func (s *Server) recordRefusal(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err != nil {
			s.addRefusal(c, err)
		}
		return err
	}
}

func (s *Server) addRefusal(c echo.Context, refusal error) {
	for _, known := range refusalEvents {
		if !errors.Is(refusal, known.err) {
			continue
		}
		event := wire.Event{Kind: known.kind}
		if known.param != "" {
			event.Name, _ = name(c, known.param) // a route without one is of this server's own pool
		}
		if id, err := strconv.Atoi(c.Param("worker_id")); err == nil {
			event.WorkerID = &id
		}
		s.events.AddOnce(event)
		return
	}
}

// countGuarded notes what has become of a request to a guarded route: its answer is a replay, or
// its handler began.
func (s *Server) countGuarded(header http.Header, began bool) {
	switch {
	case began:
		s.events.Count(events.TokenClaimed)
	case header.Get("Idempotent-Replayed") == "true":
		s.events.Count(events.TokenReplayed)
	}
}
