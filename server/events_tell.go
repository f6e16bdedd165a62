package server

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/workerlease"
)

// overheard says which errors of requests are events, and where in the route the name is that they
// are about.
var overheard = []struct {
	err   error
	kind  string
	param string // "" = it is about no name
}{
	{counter.ErrBehind, counterInDoubt, "key"},
	{counter.ErrHoldOff, counterInDoubt, "key"},
	{workerlease.ErrLost, workerLost, "pool"},
	{workerlease.ErrQuarantined, workerQuarantined, "pool"},
	{workerlease.ErrExhausted, workerExhausted, "pool"},
	{lock.ErrLost, lockLost, "name"},
	{lock.ErrInDoubt, lockQuarantined, "name"},
	{idempotency.ErrInDoubt, tokenInDoubt, ""},
}

// overhear tells of what requests were refused for that is more than one client's business.
func (s *Server) overhear(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err != nil {
			s.tellRefusal(c, err)
		}
		return err
	}
}

func (s *Server) tellRefusal(c echo.Context, refusal error) {
	for _, known := range overheard {
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
		s.feed.tellOnce(event)
		return
	}
}

// tellGuarded notes what has become of a request to a guarded route: its answer is a replay, or its
// handler began.
func (s *Server) tellGuarded(header http.Header, began bool) {
	switch {
	case began:
		s.feed.count(tokenClaimed)
	case header.Get("Idempotent-Replayed") == "true":
		s.feed.count(tokenReplayed)
	}
}
