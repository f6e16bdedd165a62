package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/number"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server/internal/compat"
	"github.com/coatcheck/coatcheck/server/internal/events"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/workerlease"
)

// problems maps errors of domains to problems. Package idempotency maps its own, and those of the
// store that all domains share.
var problems = []struct {
	err  error
	code wire.Code
}{
	{access.ErrTooOften, wire.TooManyRequests},
	{access.ErrNotRead, wire.StoreUnavailable},
	{compat.ErrToken, wire.Forbidden},
	{counter.ErrRequest, wire.InvalidRequest},
	{counter.ErrUnknown, wire.NotFound},
	{counter.ErrNotAnInteger, wire.NotAnInteger},
	{counter.ErrOverflow, wire.CounterOverflow},
	{counter.ErrLimit, wire.CounterLimit},
	{counter.ErrBehind, wire.CounterBehind},
	{counter.ErrHoldOff, wire.PoolQuarantined},
	{counter.ErrOtherRequest, wire.PayloadMismatch},
	{segment.ErrRequest, wire.InvalidName},
	{segment.ErrUnknownTag, wire.NotFound},
	{segment.ErrRetired, wire.CounterOverflow},
	{segment.ErrBadRow, wire.LayoutMismatch},
	{segment.ErrExhausted, wire.CounterOverflow},
	{segment.ErrStarved, wire.StoreUnavailable},
	{segment.ErrTooManyTags, wire.StoreUnavailable},
	{segment.ErrWentBack, wire.StoreUnavailable},
	{segment.ErrBadRange, wire.StoreUnavailable},
	{segment.ErrClosed, wire.StoreUnavailable},
	{number.ErrWidth, wire.CounterOverflow},
	{number.ErrNegative, wire.CounterOverflow},
	{workerlease.ErrRequest, wire.InvalidRequest},
	{workerlease.ErrUnknown, wire.NotFound},
	{workerlease.ErrOtherPool, wire.LayoutMismatch},
	{workerlease.ErrLayout, wire.LayoutMismatch},
	{workerlease.ErrExists, wire.PoolExists},
	{workerlease.ErrEnded, wire.LayoutUsedUp},
	{workerlease.ErrQuarantined, wire.PoolQuarantined},
	{workerlease.ErrLost, wire.LeaseLost},
	{workerlease.ErrExhausted, wire.PoolExhausted},
	{stamper.ErrTooMany, wire.PoolExhausted},
	{limit.ErrReached, wire.LimitReached},
	{limit.ErrRequest, wire.InvalidRequest},
	{lock.ErrHeld, wire.LockHeld},
	{lock.ErrLost, wire.LeaseLost},
	{lock.ErrRequest, wire.InvalidRequest},
	{lock.ErrCapacity, wire.LayoutMismatch},
	{lock.ErrInDoubt, wire.PoolQuarantined},
	{context.DeadlineExceeded, wire.OutcomeUnknown},
}

// Code is the code of the problem that a client of the service gets for an error of a domain.
func Code(err error) string { return string(problemOf(err).Code) }

// problemOf turns any error into the problem that the client gets.
func problemOf(err error) wire.Problem {
	if wrong, ok := errors.AsType[*fault](err); ok {
		return wrong.problem()
	}
	if full, ok := errors.AsType[*crowded](err); ok {
		return full.problem()
	}
	if errors.Is(err, frontdoor.ErrOverloaded) {
		return wire.NewProblem(wire.Overloaded, "")
	}
	if errors.Is(err, segment.ErrDatabase) {
		return wire.NewProblem(wire.StoreUnavailable, "Nothing was done. The SQL database that ids of segments come from cannot be reached, or refuses what it is asked. Ask again after Retry-After.")
	}
	if errors.Is(err, errClosing) {
		return wire.NewProblem(wire.StoreUnavailable, "Nothing was done: this server is stopping. Ask again: another one answers.")
	}
	if problem, ok := idempotency.Problem(err); ok {
		return problem
	}
	if unavailable, ok := errors.AsType[*stamper.UnavailableError](err); ok {
		if errors.Is(unavailable.Cause, redisstore.ErrUnsuitable) {
			return problemOf(unavailable.Cause)
		}
		return wire.NewProblem(wire.StoreUnavailable, "No id was stamped: "+unavailable.Reason+".")
	}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			problem := wire.NewProblem(known.code, detail(err, known.err))
			problem.RetryAfter, problem.Since = cmp.Or(redisstore.RetryAfter(err), problem.RetryAfter), heldSince(err)
			addLimit(&problem, err)
			return problem
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return wire.NewProblem(wire.PayloadTooLarge, "")
	}
	if web, ok := errors.AsType[*echo.HTTPError](err); ok {
		return webProblem(web)
	}
	return wire.NewProblem(wire.InternalError, "")
}

// detail is the text of an error beyond its kind, without the package's name; "" if there is none.
// What stands before the kind names steps of ours.
func detail(err, kind error) string {
	text := err.Error()
	if text == kind.Error() {
		return ""
	}
	// what the service was doing is its own matter
	text = text[max(strings.Index(text, kind.Error()), 0):]
	if says, ok := strings.CutPrefix(text, kind.Error()+": "); ok && (errors.Is(kind, counter.ErrBehind) || errors.Is(kind, workerlease.ErrQuarantined)) {
		return says // the problem's title says the rest
	}
	_, text, _ = strings.Cut(text, ": ")
	return text
}

// webProblem is the problem for what Echo refused by itself.
func webProblem(err *echo.HTTPError) wire.Problem {
	switch err.Code {
	case http.StatusNotFound:
		return wire.NewProblem(wire.NotFound, "no such path; GET / lists what there is")
	case http.StatusMethodNotAllowed:
		return wire.NewProblem(wire.MethodNotAllowed, "")
	case http.StatusServiceUnavailable:
		return wire.NewProblem(wire.OutcomeUnknown, "the request took longer than this server allows")
	}
	return wire.NewProblem(wire.InternalError, "")
}

// writeError is Echo's error handler: every error of a request ends here.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return // the answer is on its way; the client sees it cut off
	}
	s.refuse(c.Response(), c.Request(), err)
}

// writeGuardError answers for the idempotency middleware.
func (s *Server) writeGuardError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, idempotency.ErrInDoubt) {
		s.events.AddOnce(wire.Event{Kind: events.TokenInDoubt})
	}
	s.refuse(w, r, err)
}

// refuse answers with the problem of an error. Causes for the operator alone go to the log.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := problemOf(err)
	s.complete(&problem, r)
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		problem.Detail = "the limit is " + byteCount(tooLarge.Limit)
	}
	switch problem.Code {
	case wire.InternalError, wire.StoreUnavailable, wire.OutcomeUnknown:
		s.log.ErrorContext(r.Context(), "request failed", "code", string(problem.Code), "error", err)
		if s.config.TellCauses {
			problem.Detail = err.Error()
		}
	}
	if s.config.Tracer != nil {
		noteProblem(trace.SpanFromContext(r.Context()), problem)
	}
	s.metrics.Problem(string(problem.Code))
	requestlog.Refuse(r.Context(), string(problem.Code), problem.Operation)
	problem.Write(w)
}

// complete adds what only the service knows: limits, and where to read on.
func (s *Server) complete(problem *wire.Problem, r *http.Request) {
	switch problem.Code {
	case wire.PayloadTooLarge:
		problem.Detail = "the limit is " + byteCount(s.config.MaxBody)
	case wire.KeyMissing, wire.KeyMalformed, wire.PayloadMismatch:
		problem.See = policyPath
	case wire.IdempotencyUnknown, wire.InProgress:
		problem.See = policyPath
		if problem.Operation != "" {
			problem.See = "/operation/" + problem.Operation
		}
		if token := r.Header.Get(idempotency.TokenHeader); token != "" {
			problem.See = "/token/" + token
		} else if r.URL.Path == ownClaim && problem.Operation == "" {
			problem.See = ""
		} else if strings.HasPrefix(r.URL.Path, "/token/") {
			problem.See = strings.TrimSuffix(r.URL.Path, "/claim")
		}
	}
}

// fault is a request that is wrong in one place.
type fault struct {
	code   wire.Code
	field  string
	detail string
}

func (f *fault) Error() string { return f.field + ": " + f.detail }

func (f *fault) problem() wire.Problem {
	problem := wire.NewProblem(f.code, f.Error())
	problem.Field = f.field
	return problem
}

func invalid(field, detail string) error { return &fault{wire.InvalidRequest, field, detail} }
