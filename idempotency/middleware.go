package idempotency

import (
	"context"
	"errors"
	"net/http"
	"time"
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
	run, outcome, err := t.begin(r.Context(), ref, route.terms(fingerprint))
	if err != nil {
		return err
	}
	if !outcome.Granted {
		outcome.Answer.replay(w)
		return nil
	}
	return run.handle(w, r, route, next)
}

// handle runs the handler, records its answer and sends it.
func (run *run) handle(w http.ResponseWriter, r *http.Request, route Route, next http.Handler) error {
	ctx, cancel := detached(r.Context())
	defer cancel(nil)
	ctx = run.start(ctx, cancel)
	record := newRecorder(w, route.MaxAnswer, func(answer Answer) error {
		run.beat.stop()
		return run.record(answer)
	})
	run.call(func() { next.ServeHTTP(record, r.WithContext(ctx)) })
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
