package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Route is the policy of one guarded route. The zero value of each field means the default beside it.
type Route struct {
	Name      string        // part of a key's scope and of the fingerprint; "" = the request's pattern, or its method and path
	Accept    Accept        // which header it takes; "" = TokenOrKey
	Optional  bool          // a request without a header passes unguarded
	Policy    Policy        // "" = Hold
	Lease     time.Duration // how long an attempt may be silent before it is in doubt; 0 = 30 s
	Retention time.Duration // how long an answer is kept; 0 = 24 h
	Scope     string        // tokens that were issued for another scope are refused; "" = only tokens without a scope fit
	Ack       int           // replicas that must have the claim before the handler runs; 0 = what the store asks for
	MaxBody   int64         // bytes of a request's body; more is refused. 0 = 1 MiB
	MaxAnswer int           // bytes of an answer's body that are kept; 0 = 1 MiB
}

// WithDefaults returns the route with every zero field but Name, Scope and Ack replaced by its default.
func (r Route) WithDefaults() Route {
	if r.Accept == "" {
		r.Accept = TokenOrKey
	}
	terms := Terms{Policy: r.Policy, Lease: r.Lease, Retention: r.Retention}.withDefaults()
	r.Policy, r.Lease, r.Retention = terms.Policy, terms.Lease, terms.Retention
	if r.MaxBody == 0 {
		r.MaxBody = 1 << 20
	}
	if r.MaxAnswer == 0 {
		r.MaxAnswer = 1 << 20
	}
	return r
}

func (r Route) terms(fingerprint string) Terms {
	return Terms{Fingerprint: fingerprint, Policy: r.Policy, Lease: r.Lease, Retention: r.Retention, Scope: r.Scope, Ack: r.Ack}
}

func (r Route) name(request *http.Request) string {
	switch {
	case r.Name != "":
		return r.Name
	case request.Pattern != "":
		return request.Pattern
	}
	return request.Method + " " + request.URL.Path
}

// Middleware guards a handler. The handler's context survives the client's hang-up, so that an operation which has begun is finished; it ends with the
// cause ErrSuperseded when the claim is lost, and with the request's deadline. A panic leaves the token in doubt at once and goes on. A route whose
// policy, lease or retention is out of bounds is a programmer's mistake and panics here.
func (t *Tokens) Middleware(route Route) func(http.Handler) http.Handler {
	route = route.WithDefaults()
	if err := route.terms("").check(); err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := t.serve(w, r, route, next); err != nil {
				t.fail(w, r, err)
			}
		})
	}
}

// serve answers a request, or returns why it is refused; then nothing has been written.
func (t *Tokens) serve(w http.ResponseWriter, r *http.Request, route Route, next http.Handler) error {
	name := route.name(r)
	ref, err := refOf(r, route.Accept, t.principal(r), name)
	if errors.Is(err, ErrKeyMissing) && route.Optional {
		next.ServeHTTP(w, r)
		return nil
	}
	if err != nil {
		return err
	}
	fingerprint, err := takeBody(r, name, route.MaxBody)
	if err != nil {
		return err
	}
	terms, owner, sent := route.terms(fingerprint), secret.New(), time.Now()
	outcome, err := t.claim(r.Context(), ref, terms, owner)
	switch {
	case errors.Is(err, redisstore.ErrUnknownOutcome):
		t.giveBack(ref, owner, terms.Lease)
		return fmt.Errorf("the handler did not run: %w", err)
	case err != nil:
		return err
	case !outcome.Granted:
		outcome.Answer.replay(w)
		return nil
	}
	run := &run{tokens: t, ref: ref, owner: owner, terms: terms, attempt: &Attempt{Fence: outcome.Grant.Fence, Number: outcome.Grant.Attempt}}
	return run.handle(w, r, route, next, sent)
}

// run is one start of a handler.
type run struct {
	tokens  *Tokens
	ref     Ref
	owner   string
	terms   Terms
	attempt *Attempt
	beat    *heartbeat
}

func (run *run) handle(w http.ResponseWriter, r *http.Request, route Route, next http.Handler, claimed time.Time) error {
	ctx, cancel := detached(r.Context())
	defer cancel(nil)
	ctx = context.WithValue(ctx, contextKey{}, run.attempt)
	run.beat = run.tokens.beat(run.ref, run.owner, run.terms, claimed, cancel)
	record := newRecorder(w, route.MaxAnswer, func(answer Answer) error {
		run.beat.stop()
		return run.record(answer)
	})
	run.call(next, record, r.WithContext(ctx))
	run.beat.stop()
	if record.refused != nil {
		return record.refused
	}
	if !record.through {
		if err := run.settle(record.finished()); err != nil {
			return err
		}
	}
	record.send()
	return nil
}

// detached returns a context that outlives the client's connection but keeps the request's values and deadline.
func detached(parent context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	deadline, ok := parent.Deadline()
	if !ok {
		return ctx, cancel
	}
	ctx, stop := context.WithDeadline(ctx, deadline)
	return ctx, func(cause error) { cancel(cause); stop() }
}

// call runs the handler. If it panics, the token is in doubt from now on: nobody knows what the handler has done.
func (run *run) call(next http.Handler, w http.ResponseWriter, r *http.Request) {
	panicked := true
	defer func() {
		if panicked {
			run.beat.stop()
			run.abandon()
		}
	}()
	next.ServeHTTP(w, r)
	panicked = false
}

func (run *run) abandon() {
	if err := run.tokens.Abandon(context.Background(), run.ref, run.owner, run.terms.Retention); err != nil {
		run.tokens.log.Warn("idempotency: a handler panicked; its token is in doubt when its lease has lapsed", "error", err)
	}
}

// settle records the answer, or gives the claim back if the handler said that it never began. The error is one that the client has to hear instead.
func (run *run) settle(answer Answer) error {
	if !run.attempt.notBegun.Load() {
		return run.record(answer)
	}
	if err := run.tokens.Release(context.Background(), run.ref, run.owner); err != nil {
		run.tokens.log.Warn("idempotency: a claim could not be given back at once", "error", err)
		run.tokens.giveBack(run.ref, run.owner, run.terms.Lease)
	}
	return nil
}

// record stores the answer before it is sent. If another attempt has the claim, this answer must not be sent. If the store is away, or the record is
// gone, the answer is the truth all the same and is sent; recording goes on in the background.
func (run *run) record(answer Answer) error {
	err := run.tokens.Complete(context.Background(), run.ref, run.owner, answer, run.terms.Retention)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrSuperseded):
		return err
	case errors.Is(err, ErrUnknownToken):
		run.tokens.log.Warn("idempotency: the record of a running attempt is gone; its answer is sent and not kept")
		return nil
	}
	run.tokens.log.Warn("idempotency: an answer could not be recorded yet; it is sent, and recording goes on", "error", err)
	run.tokens.completeLater(run.ref, run.owner, answer, run.terms.Retention)
	return nil
}
