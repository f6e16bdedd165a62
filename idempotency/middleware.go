package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/coatcheck/coatcheck/internal/muxpattern"
)

// guard is a route's policy, ready for requests.
type guard struct {
	tokens *Tokens
	route  Route
	ends   *statuses
	next   http.Handler
}

// Middleware guards a handler. The handler's context survives the client's hang-up, so that an
// operation that has begun is finished; it ends with the cause ErrSuperseded when the claim is
// lost, with ErrUnknownToken when Redis has lost the token, and with the request's deadline. A
// panic leaves the token in doubt at once, unless an answer over [Route].MaxAnswer is recorded, and
// is passed on. Where the middleware answers by itself, by a replay or a refusal, it does not call
// the handler; after that nobody else may. A wrapper that calls a handler all the same is noticed
// when that handler reads the request's body: the read fails, and the log says why. One that reads
// none runs unnoticed, since it writes to the wrapper's own ResponseWriter: where the guard has not
// called the next handler, the wrapper has to end the chain. Middleware panics if [Route.Check]
// returns an error.
//
// Routes of one Name, or of one [Route].Keys, are one scope, and their paths are part of the
// fingerprint: a key that has been used at one path gets [ErrMismatch] at another.
func (t *Tokens) Middleware(route Route) func(http.Handler) http.Handler {
	route = route.WithDefaults()
	if err := route.Check(); err != nil {
		panic(err)
	}
	ends, err := route.statuses()
	if err != nil {
		panic(err) // Check has read them
	}
	t.guards(route.Name, route.Resolve)
	return func(next http.Handler) http.Handler { return &guard{t, route, ends, next} }
}

// Handle registers a guarded handler with a mux, as http.ServeMux.Handle does: it panics if the mux
// does, if [Route.Check] returns an error, and for a pattern that guards nothing. Such are patterns
// of other routers, as "POST /orders/:id" and "POST /orders/*", and those with a character that
// only looks like a slash: the mux takes them for plain text, and the requests that are meant go
// past the guard to whatever else the mux has. It panics as well for a second pattern of one Name,
// where each request would be refused whose key was used at the first: the path is part of the
// fingerprint, so that no operation gets another's answer.
func (t *Tokens) Handle(mux *http.ServeMux, pattern string, route Route, handler http.Handler) {
	if wrong := muxpattern.Fault(pattern); wrong != "" {
		panic(fmt.Sprintf("idempotency: pattern %q: %s", pattern, wrong))
	}
	if first, _ := t.handled.LoadOrStore(cmp.Or(route.Name, pattern), pattern); first != pattern {
		panic(fmt.Sprintf("idempotency: pattern %q: the name %q is that of the route %q already. A key would be one operation on both, "+
			"and refused as used for another request on the second: give each its own name, or leave Name empty",
			pattern, cmp.Or(route.Name, pattern), first))
	}
	t.guards(cmp.Or(route.Name, pattern), route.Resolve)
	if err := muxpattern.Handle(mux, pattern, t.Middleware(route)(handler)); err != nil {
		panic(fmt.Sprintf("idempotency: %s", err))
	}
}

// guards notes a route; it may have no name.
func (t *Tokens) guards(name string, resolve Resolver) {
	if name != "" {
		t.routes.Store(name, nil)
	}
	t.asker.answersFor(name, resolve)
}

// Routes returns the names of the routes that were given to Handle, and with a name to Middleware.
func (t *Tokens) Routes() (names []string) {
	for name := range t.routes.Range {
		names = append(names, name.(string))
	}
	slices.Sort(names)
	return names
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := g.serve(w, r); err != nil {
		g.refuse(w, r, err)
		g.answered(r)
	}
}

// refuse answers a request that is refused, with a link to the policy if that explains it.
func (g *guard) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if g.tokens.policyURL != "" && errors.Is(err, errPolicy) {
		w.Header().Set("Link", "<"+g.tokens.policyURL+`>; rel="describedby"`)
	}
	g.tokens.fail(w, r, err)
}

// serve answers a request, or returns why it is refused; then nothing has been written.
func (g *guard) serve(w http.ResponseWriter, r *http.Request) error {
	name := g.route.name(r)
	space := g.route.keySpace(name)
	key, err := keyOf(r, g.route, g.principal, space)
	var fingerprint string
	inBody := g.looksIntoBody(r, err)
	if inBody {
		key, fingerprint, err = g.takeKey(r, space)
	}
	if passes, err := g.passes(r, err); err != nil {
		return err
	} else if passes {
		g.pass(w, r)
		return nil
	}
	if !inBody {
		if fingerprint, err = takeBody(r, space, g.route); err != nil {
			return err
		}
	}
	if !key.issued {
		g.tokens.callers.see(r, name, key.ID, fingerprint, key.record)
		g.tokens.WarnNameless(r.Context(), key.Principal, name)
	}
	options := g.route.options(fingerprint)
	options.Route, options.RequestID = name, requestID(w, r)
	patience, within := g.route.patience(r), g.within(r, key)
	if within {
		patience = 0 // it would wait for itself
	}
	run, outcome, err := g.tokens.beginOrWait(r.Context(), key, options, patience)
	if err != nil && within {
		return g.guardedTwice(r, key, err)
	}
	if err != nil {
		return err
	}
	if !outcome.Granted {
		if !outcome.Answer.fits(r) {
			return ErrConditional
		}
		outcome.Answer.replay(w)
		g.answered(r)
		return nil
	}
	run.ends = g.ends
	return run.handle(w, r, g.route.MaxAnswer, g.next)
}

func (g *guard) principal(r *http.Request) (string, error) {
	if g.route.Principal != nil {
		return g.route.Principal(r)
	}
	return g.tokens.principal(r)
}

// requestID is the id of the answer, else that of the request; "" if neither has one.
func requestID(w http.ResponseWriter, r *http.Request) string {
	return cmp.Or(w.Header().Get("X-Request-Id"), r.Header.Get("X-Request-Id"))
}

// handle runs the handler, records its answer and sends it. An answer over the limit is recorded as
// soon as it grows over it; one that is not to be recorded is sent directly, and its attempt ends
// when the handler has.
func (run *run) handle(w http.ResponseWriter, r *http.Request, limit int, next http.Handler) error {
	ctx, cancel := run.context(r.Context())
	defer cancel(nil)
	ctx = run.start(ctx, cancel)
	stored := false
	record := newRecorder(w, r, limit, func(answer Answer) error {
		run.attempt.doubt(answer.Status > maxStatus)
		if run.ending(answer.Status) != recorded {
			return nil
		}
		stored = true
		run.beat.Stop()
		return run.record(answer)
	})
	run.call(func() { next.ServeHTTP(record, r.WithContext(ctx)) })
	switch {
	case record.refused != nil:
		return record.refused
	case record.answer.Status == 0 && ctx.Err() != nil:
		run.giveUp()
		return unanswered(ctx, r.Context())
	case stored && run.attempt.inDoubt.Load():
		// the answer had to be recorded when it grew over the limit, and is taken back
		run.abandon()
	case !stored:
		answer, cut := record.finished(), record.cut()
		run.attempt.doubt(answer.Status > maxStatus || cut)
		if err := run.settle(answer); err != nil {
			return err
		}
		if cut {
			return errCutShort
		}
	}
	record.send()
	return nil
}

// unanswered is for a handler whose time is over and which has answered nothing. Where the claim
// was lost, the client is told so. Else the answer is left to what limits the time, as chi's
// middleware.Timeout: nothing is written here. That looks whether the request's time is over, which
// it is at the same moment by a timer of its own: so this waits for it.
func unanswered(ctx, request context.Context) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrSuperseded):
		return cause
	case errors.Is(cause, ErrUnknownToken):
		return errRecordLost
	}
	select {
	case <-request.Done():
	case <-time.After(time.Second): // it has a deadline and never ends
	}
	return nil
}

// context returns a context that outlives the client's connection but keeps the request's values
// and deadline.
func (run *run) context(request context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(run.detached)
	deadline, ok := request.Deadline()
	if !ok {
		return ctx, cancel
	}
	ctx, stop := context.WithDeadline(ctx, deadline)
	return ctx, func(cause error) { cancel(cause); stop() }
}
