package coatchecktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/idempotency"
)

// ResolverCase is an effect of a service, and the resolver that answers for it.
type ResolverCase struct {
	// Attempt does what a handler does for an operation, as the attempt with this fence. It calls
	// begun once it has begun, before the transaction of the effect: an attempt may be paused
	// there. An error says that it had no effect.
	Attempt func(ctx context.Context, operation string, fence int64, begun func()) error
	Resolve idempotency.Resolver
	// Effects counts the effects that an operation has had.
	Effects func(ctx context.Context, operation string) (int, error)
	Races   int // 0 = 1000
}

// CheckResolver fails the test unless the resolver closes operations: it is asked before, after and
// beside the effect, and an attempt that was paused wakes after the answer. A resolver that only
// looks fails. Each call uses new names of operations, so the same database can be used again.
func CheckResolver(t testing.TB, c ResolverCase) {
	t.Helper()
	r := resolverCheck{TB: t, ResolverCase: c, ctx: t.Context(), run: rand.Text()[:16]}
	r.asksBefore()
	r.asksAfter()
	r.wakesAfter()
	if r.Races == 0 {
		r.Races = 1000
	}
	for n := range r.Races {
		r.race(n)
	}
}

type resolverCheck struct {
	testing.TB
	ResolverCase

	ctx context.Context
	run string
}

func (r *resolverCheck) operation(name string) string {
	return (r.run + name + strings.Repeat("-", 32))[:32]
}

// attempt runs one, and reports whether it says that it had its effect.
func (r *resolverCheck) attempt(operation string, fence int64, begun func()) bool {
	return r.Attempt(r.ctx, operation, fence, begun) == nil
}

func (r *resolverCheck) ask(operation string, fence int64) idempotency.Resolution {
	r.Helper()
	said, err := r.Resolve(r.ctx, idempotency.Operation{Name: operation, Fence: fence, State: idempotency.StateInDoubt})
	switch {
	case err != nil:
		r.Errorf("resolver: %s: error %v", operation, err)
	case said.Decision != idempotency.DecisionHappened && said.Decision != idempotency.DecisionNotBegun:
		r.Errorf("resolver: %s: it says %q, neither %q nor %q", operation, said.Decision,
			idempotency.DecisionHappened, idempotency.DecisionNotBegun)
	case said.Decision == idempotency.DecisionHappened && (said.Answer.Status < 200 || said.Answer.Status > 599):
		r.Errorf("resolver: %s: the answer that it says has the status %d", operation, said.Answer.Status)
	}
	return said
}

func (r *resolverCheck) says(when, operation string, fence int64, want idempotency.Decision) {
	r.Helper()
	if got := r.ask(operation, fence).Decision; got != want {
		r.Errorf("resolver: asked %s: it says %q, want %q", when, got, want)
	}
}

func (r *resolverCheck) has(when, operation string, want int) {
	r.Helper()
	if got, err := r.Effects(r.ctx, operation); err != nil || got != want {
		r.Errorf("resolver: %s: %d effects, error %v; want %d", when, got, err, want)
	}
}

// asksBefore: a closed operation stays closed for its attempt and older attempts. A newer one runs.
func (r *resolverCheck) asksBefore() {
	operation := r.operation("before")
	r.says("before the effect", operation, 5, idempotency.DecisionNotBegun)
	r.says("about an older attempt", operation, 3, idempotency.DecisionNotBegun)
	for _, fence := range []int64{4, 5} {
		if r.attempt(operation, fence, func() {}) {
			r.Errorf("resolver: the attempt with fence %d had its effect after the resolver had closed the operation up to fence 5", fence)
		}
	}
	r.has("after attempts with closed fences", operation, 0)
	if !r.attempt(operation, 6, func() {}) {
		r.Errorf("resolver: the attempt with fence 6 had no effect, though only fences up to 5 are closed: a freed key could never run")
	}
	r.has("after an attempt with a larger fence", operation, 1)
	r.says("after that effect", operation, 6, idempotency.DecisionHappened)
}

// asksAfter: it says the same each time.
func (r *resolverCheck) asksAfter() {
	operation := r.operation("after")
	if !r.attempt(operation, 5, func() {}) {
		r.Errorf("resolver: the first attempt had no effect")
	}
	first := r.ask(operation, 5)
	if first.Decision != idempotency.DecisionHappened {
		r.Errorf("resolver: asked after the effect: it says %q", first.Decision)
	}
	if again := r.ask(operation, 5); fmt.Sprint(again) != fmt.Sprint(first) {
		r.Errorf("resolver: asked again after the effect: it says %v, and before %v", again, first)
	}
	r.has("after the effect, and two questions", operation, 1)
}

// wakesAfter: an attempt is paused before its effect, and wakes after the answer.
func (r *resolverCheck) wakesAfter() {
	operation := r.operation("paused")
	paused, wake := make(chan struct{}), make(chan struct{})
	var had bool
	var running sync.WaitGroup
	running.Go(func() {
		defer func() {
			select {
			case <-paused:
			default:
				close(paused) // it has not called begun
			}
		}()
		had = r.attempt(operation, 5, func() { close(paused); <-wake })
	})
	<-paused
	said := r.ask(operation, 5)
	close(wake)
	running.Wait()
	r.agrees("after an attempt that was paused", operation, said, had)
}

// agrees fails unless the resolver told the number of effects.
func (r *resolverCheck) agrees(when, operation string, said idempotency.Resolution, had bool) {
	r.Helper()
	want := 0
	if said.Decision == idempotency.DecisionHappened {
		want = 1
	}
	r.has(fmt.Sprintf("%s, of which the resolver says %q", when, said.Decision), operation, want)
	if had != (want == 1) {
		r.Errorf("resolver: %s: the resolver says %q, and the attempt that it had its effect: %v", when, said.Decision, had)
	}
}

// race asks twice beside an attempt.
func (r *resolverCheck) race(n int) {
	operation := r.operation(fmt.Sprint("race", n))
	var said [2]idempotency.Resolution
	var had bool
	var racing sync.WaitGroup
	racing.Go(func() { had = r.attempt(operation, 5, func() {}) })
	for i := range said {
		racing.Go(func() { said[i] = r.ask(operation, 5) })
	}
	racing.Wait()
	for _, one := range said {
		r.agrees("after a race", operation, one, had)
	}
}
