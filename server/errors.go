package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
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
	code api.Code
}{
	{access.ErrTooOften, api.TooManyRequests},
	{access.ErrNotRead, api.StoreUnavailable},
	{compat.ErrToken, api.Forbidden},
	{counter.ErrInvalid, api.InvalidRequest},
	{counter.ErrNotFound, api.NotFound},
	{counter.ErrNotAnInteger, api.NotAnInteger},
	{counter.ErrOverflow, api.CounterOverflow},
	{counter.ErrLimit, api.CounterLimit},
	{counter.ErrBehind, api.CounterBehind},
	{counter.ErrPermanent, api.CounterPermanent},
	{counter.ErrPast, api.CounterBack},
	{counter.ErrCondition, api.PreconditionFailed},
	{counter.ErrHoldOff, api.PoolQuarantined},
	{counter.ErrOtherRequest, api.PayloadMismatch},
	{segment.ErrInvalid, api.InvalidName},
	{segment.ErrNotFound, api.NotFound},
	{segment.ErrRetired, api.CounterOverflow},
	{segment.ErrBadRow, api.LayoutMismatch},
	{segment.ErrExhausted, api.CounterOverflow},
	{segment.ErrStarved, api.StoreUnavailable},
	{segment.ErrTooManyTags, api.StoreUnavailable},
	{segment.ErrWentBack, api.StoreUnavailable},
	{segment.ErrBadRange, api.StoreUnavailable},
	{segment.ErrClosed, api.StoreUnavailable},
	{number.ErrWidth, api.CounterOverflow},
	{number.ErrNegative, api.CounterOverflow},
	{workerlease.ErrInvalid, api.InvalidRequest},
	{redisstore.ErrNotGone, api.InvalidRequest},
	{workerlease.ErrNotFound, api.NotFound},
	{workerlease.ErrOtherPool, api.LayoutMismatch},
	{workerlease.ErrLayout, api.LayoutMismatch},
	{workerlease.ErrExists, api.PoolExists},
	{workerlease.ErrEnded, api.LayoutUsedUp},
	{workerlease.ErrQuarantined, api.PoolQuarantined},
	{workerlease.ErrLost, api.LeaseLost},
	{workerlease.ErrExhausted, api.PoolExhausted},
	{stamper.ErrTooMany, api.PoolExhausted},
	{limit.ErrReached, api.LimitReached},
	{limit.ErrInvalid, api.InvalidRequest},
	{lock.ErrHeld, api.LockHeld},
	{lock.ErrLost, api.LeaseLost},
	{lock.ErrInvalid, api.InvalidRequest},
	{lock.ErrPermits, api.PermitsMismatch},
	{lock.ErrInDoubt, api.PoolQuarantined},
	{context.DeadlineExceeded, api.OutcomeUnknown},
}

// Code is the code of the problem that a client of the service gets for an error of a domain.
func Code(err error) string { return string(problemOf(err).Code) }

// problemOf turns any error into the problem that the client gets.
func problemOf(err error) api.Problem {
	if wrong, ok := errors.AsType[*fault](err); ok {
		return wrong.problem()
	}
	if full, ok := errors.AsType[*crowded](err); ok {
		return full.problem()
	}
	if errors.Is(err, frontdoor.ErrShare) {
		return errShare.problem()
	}
	if errors.Is(err, frontdoor.ErrOverloaded) {
		return api.NewProblem(api.Overloaded, "")
	}
	if errors.Is(err, segment.ErrDatabase) {
		return api.NewProblem(api.StoreUnavailable, "Nothing was done. The SQL database that ids of segments come from cannot be "+
			"reached, or refuses what it is asked. Ask again after Retry-After.")
	}
	if errors.Is(err, errClosing) {
		return api.NewProblem(api.StoreUnavailable, "Nothing was done: this server is stopping. Ask again: another one answers.")
	}
	if problem, ok := idempotency.Problem(err); ok {
		return problem
	}
	if unavailable, ok := errors.AsType[*stamper.UnavailableError](err); ok {
		if errors.Is(unavailable.Cause, redisstore.ErrUnsuitable) {
			return problemOf(unavailable.Cause)
		}
		return api.NewProblem(api.StoreUnavailable, "No id was stamped: "+unavailable.Reason+".")
	}
	if short, ok := errors.AsType[*redisstore.ShortfallError](err); ok {
		return api.NewProblem(api.OutcomeUnknown, fmt.Sprintf("Redis has the write, and %d of the %d replicas that have to confirm "+
			"it did so in time: it is lost if another one becomes master. "+
			"With a token or key, ask again with the same one; else look before you repeat. An operator finds which replica is "+
			"away; for one that is gone for good: coatcheck store replicas-gone.", short.Got, short.Want))
	}
	for _, known := range problems {
		if errors.Is(err, known.err) {
			problem := api.NewProblem(known.code, detail(err, known.err))
			problem.RetryAfter, problem.Since = cmp.Or(redisstore.RetryAfter(err), problem.RetryAfter), api.At(heldSince(err))
			addLimit(&problem, err)
			return problem
		}
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return api.NewProblem(api.PayloadTooLarge, "")
	}
	if web, ok := errors.AsType[*echo.HTTPError](err); ok {
		return webProblem(web)
	}
	return api.NewProblem(api.InternalError, "")
}

// titled are the kinds of errors whose problem's title says what the kind does.
var titled = []error{counter.ErrBehind, counter.ErrPermanent, workerlease.ErrQuarantined, lock.ErrHeld}

// detail is the text of an error beyond its kind, without the package's name; "" if there is none.
// What stands before the kind names steps of ours.
func detail(err, kind error) string {
	text := err.Error()
	if text == kind.Error() {
		return ""
	}
	// what the service was doing is its own matter
	text = text[max(strings.Index(text, kind.Error()), 0):]
	if says, ok := strings.CutPrefix(text, kind.Error()+": "); ok && slices.Contains(titled, kind) {
		return says
	}
	_, text, _ = strings.Cut(text, ": ")
	return text
}

// webProblem is the problem for what Echo refused by itself.
func webProblem(err *echo.HTTPError) api.Problem {
	switch err.Code {
	case http.StatusNotFound:
		return api.NewProblem(api.NotFound, "no such path; GET / lists what there is")
	case http.StatusMethodNotAllowed:
		return api.NewProblem(api.MethodNotAllowed, "")
	case http.StatusServiceUnavailable:
		return api.NewProblem(api.OutcomeUnknown, "the request took longer than this server allows")
	}
	return api.NewProblem(api.InternalError, "")
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
		s.events.AddOnce(api.Event{Kind: events.OperationInDoubt})
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
	case api.InternalError, api.StoreUnavailable, api.OutcomeUnknown:
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
func (s *Server) complete(problem *api.Problem, r *http.Request) {
	switch problem.Code {
	case api.PayloadTooLarge:
		problem.Detail = "the limit is " + byteCount(s.config.MaxBody)
	case api.KeyMissing, api.KeyMalformed, api.PayloadMismatch:
		problem.See = policyPath
	case api.IdempotencyUnknown, api.InProgress:
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
	code   api.Code
	field  string
	detail string
}

func (f *fault) Error() string { return f.field + ": " + f.detail }

func (f *fault) problem() api.Problem {
	problem := api.NewProblem(f.code, f.Error())
	problem.Field = f.field
	return problem
}

func invalid(field, detail string) error { return &fault{api.InvalidRequest, field, detail} }
