package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Why the gateway ends a request to the upstream, as the cause of its context.
var (
	errTimeout  = errors.New("gateway: the upstream took longer than the route allows")
	errStopping = errors.New("gateway: the gateway is stopping")
)

// failure is how a request to the upstream failed.
type failure string

// The failures. Only after unreachable is it known that the upstream has seen nothing.
const (
	unreachable failure = "unreachable" // no byte of the request was written
	timedOut    failure = "timeout"     // the route's time was over
	broken      failure = "broken"      // no answer came, or something that is none
	cut         failure = "cut"         // the answer broke off
	claimLost   failure = "claim_lost"  // another attempt took over, or the token's record is gone
	stopped     failure = "stopping"    // the gateway's time to stop was over
	byStatus    failure = "status"      // the answer's status leaves the operation in doubt
	clientGone  failure = "client_gone" // of what is not guarded: the client hung up
)

var failures = []failure{unreachable, timedOut, broken, cut, claimLost, stopped, byStatus, clientGone}

// endedBy returns the failure that ended a request's context; otherwise if there is none.
func endedBy(ctx context.Context, otherwise failure) failure {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, redisstore.ErrLost), errors.Is(cause, idempotency.ErrUnknownToken):
		return claimLost
	case errors.Is(cause, errTimeout):
		return timedOut
	case errors.Is(cause, errStopping):
		return stopped
	}
	return otherwise
}

// noAnswer answers a request that the upstream did not answer, as
// [httputil.ReverseProxy.ErrorHandler]. It decides the token's outcome.
func (g *Gateway) noAnswer(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	attempt, isGuarded := idempotency.FromContext(r.Context())
	if _, is := errors.AsType[*http.MaxBytesError](err); is && !isGuarded {
		x.outcome = badRequest
		g.writeProblem(w, r, api.NewProblem(api.PayloadTooLarge, ""))
		return
	}
	if wrong, is := errors.AsType[*fieldError](err); is && !isGuarded {
		g.refuseField(w, r, api.InvalidRequest, wrong.field, wrong.text)
		return
	}
	failed := endedBy(r.Context(), broken)
	switch {
	case !isGuarded && failed == broken && r.Context().Err() != nil:
		failed = clientGone
	case isGuarded && failed == claimLost:
		attempt.Abandon()
	case x.contact.untouched():
		failed = unreachable
		if isGuarded {
			attempt.Release()
		}
	case isGuarded:
		attempt.Abandon()
	}
	g.note(r.Context(), x, failed, err)
	g.writeProblem(w, r, failed.problem(r.Context()))
}

// note counts a failure and logs it, without the upstream's answer, which may hold a secret.
func (g *Gateway) note(ctx context.Context, x *exchange, failed failure, err error) {
	g.metrics.failures.WithLabelValues(string(failed)).Inc()
	attributes := []any{"failure", string(failed), "route", x.match()}
	if failed == unreachable && err != nil {
		attributes = append(attributes, "error", err)
	}
	if failed == clientGone {
		g.log.DebugContext(ctx, "the client hung up", attributes...)
		return
	}
	message := "the upstream gave no whole answer"
	if failed == byStatus {
		message = "the upstream's status leaves the operation in doubt; keep, frees and doubts of the route decide that"
	}
	g.log.WarnContext(ctx, message, attributes...)
}

// problem is the answer to a client for a failure.
func (failed failure) problem(ctx context.Context) api.Problem {
	detail := map[failure]string{
		timedOut: "it was sent the request and did not answer in time",
		broken:   "it was sent the request and gave no answer that can be read",
		cut:      "its answer broke off",
		stopped:  "it was sent the request, and the gateway stopped before the answer came",
	}[failed]
	switch {
	case failed == unreachable:
		return api.NewProblem(api.UpstreamUnavailable, "")
	case failed == claimLost && errors.Is(context.Cause(ctx), redisstore.ErrLost):
		return api.NewProblem(api.Superseded, "")
	case detail == "":
		return api.NewProblem(api.OutcomeUnknown, "")
	}
	return api.NewProblem(api.OutcomeUnknown, "The service behind the gateway may or may not have done what was asked: "+detail+".")
}

// recovered answers a request whose handler panicked. ReverseProxy panics with http.ErrAbortHandler
// when an answer breaks off; if nothing was sent the client is told, else its connection is cut.
func (g *Gateway) recovered(w *responder, r *http.Request, x *exchange, reason any) {
	if err, ok := reason.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		g.log.ErrorContext(r.Context(), "panic in a handler", "error", fmt.Sprint(reason), "route", x.match())
		if w.status != 0 || w.taken != nil {
			panic(http.ErrAbortHandler)
		}
		g.writeProblem(w, r, api.NewProblem(api.InternalError, ""))
		return
	}
	ctx, failed := r.Context(), cut
	if x.granted != nil {
		ctx = x.granted
	}
	if r.Context().Err() != nil && w.status != 0 {
		failed = clientGone
	}
	failed = endedBy(ctx, failed)
	g.note(r.Context(), x, failed, nil)
	if w.status != 0 || w.taken != nil {
		panic(http.ErrAbortHandler)
	}
	g.writeProblem(w, r, failed.problem(ctx))
}

// refuse answers for the idempotency middleware.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if wrong, is := errors.AsType[*fieldError](err); is {
		g.refuseField(w, r, api.InvalidRequest, wrong.field, wrong.text)
		return
	}
	x := exchangeOf(r.Context())
	if x.outcome = outcomeOf(err); x.outcome == atStop {
		g.refuseAtStop(w, r, x)
		return
	}
	problem, _ := idempotency.Problem(err)
	if x.outcome == overloaded {
		problem = api.NewProblem(api.Overloaded, "")
	}
	if x.outcome == storeError || x.outcome == noKeys {
		g.log.ErrorContext(r.Context(), "request failed", "code", string(problem.Code), "error", err)
	}
	g.writeProblem(w, r, problem)
}

// refusals maps refusals to outcomes. All others are the store's.
var refusals = []struct {
	err error
	is  outcome
}{
	{frontdoor.ErrOverloaded, overloaded}, // before what it is wrapped in
	{errAtStop, atStop},                   // the same
	{idempotency.ErrInProgress, inProgress},
	{idempotency.ErrInDoubt, inDoubt},
	{idempotency.ErrSuperseded, superseded},
	{idempotency.ErrMismatch, mismatch},
	{idempotency.ErrConditional, mismatch},
	{idempotency.ErrUnknownToken, unknownToken},
	{idempotency.ErrKeyMissing, keyError},
	{idempotency.ErrKeyMalformed, keyError},
	{idempotency.ErrUnauthorized, unauthorized},
	{idempotency.ErrNoKeys, noKeys},
	{idempotency.ErrBodyTooLarge, badRequest},
	{idempotency.ErrBodyCut, badRequest},
}

func outcomeOf(err error) outcome {
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return known.is
		}
	}
	return storeError
}

// writeProblem answers with a problem and links to more about it.
func (g *Gateway) writeProblem(w http.ResponseWriter, r *http.Request, problem api.Problem) {
	requestlog.Refuse(r.Context(), string(problem.Code), problem.Operation)
	x := exchangeOf(r.Context())
	x.code = problem.Code
	switch problem.Code {
	case api.KeyMissing, api.KeyMalformed, api.PayloadMismatch:
		problem.See = policyPath
	case api.IdempotencyUnknown, api.InProgress, api.OutcomeUnknown:
		problem.See = g.stateLink(x, r.Header.Get(idempotency.TokenHeader), problem.Operation)
	}
	if endsByItself(problem.Code, x) {
		problem.Retryable, problem.RetryAfter = true, cmp.Or(problem.RetryAfter, time.Second)
	}
	w.Header().Set(requestIDHeader, x.id)
	problem.Write(w)
}

// endsByItself reports whether the same request gets its answer later, of the attempt that has
// replaced this one, or once the service has said what became of it.
func endsByItself(code api.Code, x *exchange) bool {
	return code == api.Superseded || code == api.OutcomeUnknown && x.route != nil && x.route.ResolveAt != ""
}

// stateLink is the address of the state of a request's token or key. A client's own key has none:
// the service shows the operation in doubt. Without a known service the link leads to the policy.
func (g *Gateway) stateLink(x *exchange, token, operation string) string {
	switch {
	case x.route != nil && x.route.Accept != idempotency.AcceptKey && token != "":
		return g.config.TokenService + "/token/" + url.PathEscape(token)
	case operation != "" && g.config.TokenService != "":
		return g.config.TokenService + "/operation/" + operation
	}
	return policyPath
}
