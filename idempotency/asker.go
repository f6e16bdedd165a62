package idempotency

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
)

// asker asks resolvers about operations in doubt: about those of this process as soon as their
// outcome is unknown, about one that a repeat finds in doubt, and about all on the list, so that a
// doubt ends that nobody repeats, and whose process has died. Of several processes one asks at a
// time, since Redis grants that.
type asker struct {
	tokens *Tokens
	ctx    context.Context
	end    context.CancelFunc
	asking sync.WaitGroup
	slots  chan struct{} // questions under way

	mu       sync.Mutex
	routes   map[string]Resolver // by the name of the route
	waiting  map[string]bool     // operations
	sweeping bool
	closed   bool
}

const (
	resolveTime  = 10 * time.Second // for one question
	questions    = 16               // at once
	maxRoutes    = 10_000           // whose doubts on the list are resolved
	maxQuestions = 1000             // that wait: the list has the others
	sweepEvery   = 5 * time.Second  // how often the list is looked at
	sweepCluster = time.Minute      // the same, where it costs a script in each slot
)

func newAsker(t *Tokens) *asker {
	a := &asker{tokens: t, slots: make(chan struct{}, questions), routes: map[string]Resolver{}, waiting: map[string]bool{}}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a
}

// answersFor has the operations of a route on the list resolved from now on; a nil resolver ends
// that. The first route begins the looks at the list. A route whose name is cut there has none: two
// of them could look alike.
func (a *asker) answersFor(route string, resolve Resolver) {
	if route == "" || shownRoute(route+".") != route+"." {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if resolve == nil {
		delete(a.routes, route)
		return
	}
	if _, known := a.routes[route]; !known && len(a.routes) >= maxRoutes {
		return
	}
	a.routes[route] = resolve
	if !a.sweeping && !a.closed {
		a.sweeping = true
		a.asking.Go(a.sweep)
	}
}

// ask has a resolver asked about an operation, if it is not nil. It does not wait.
func (a *asker) ask(resolve Resolver, operation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if resolve == nil || a.closed || a.waiting[operation] || len(a.waiting) >= maxQuestions {
		return
	}
	a.waiting[operation] = true
	a.asking.Go(func() {
		defer a.asked(operation)
		select {
		case a.slots <- struct{}{}:
			defer func() { <-a.slots }()
			a.resolve(operation, resolve)
		case <-a.ctx.Done():
		}
	})
}

func (a *asker) resolverOf(route string) Resolver {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.routes[route]
}

func (a *asker) asked(operation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, operation)
}

// resolve asks about one operation, unless another process does.
func (a *asker) resolve(operation string, resolve Resolver) {
	owner := secret.New()
	begun, err := a.tokens.BeginResolving(a.ctx, operation, owner, resolveTime+5*time.Second)
	if err != nil {
		if uncertain(err) {
			a.tokens.log.WarnContext(a.ctx, "idempotency: an operation in doubt is not resolved yet", "operation", operation, "error", err)
		}
		return
	}
	about, err := a.tokens.Operation(a.ctx, operation)
	if err != nil {
		return // its lease as a resolver ends
	}
	about.Fence = begun.Fence
	said, err := question(a.ctx, resolve, about)
	if err == nil {
		said.Owner = owner
		err = a.tokens.settleResolved(a.ctx, operation, said)
	}
	a.tokens.resolved(about, begun.Asked, said.Decision, err)
	if err != nil {
		// if it is not told, its lease ends
		_ = a.tokens.EndResolving(context.WithoutCancel(a.ctx), operation, owner)
	}
}

// question asks a resolver, whose panic is an answer that says nothing.
func question(ctx context.Context, resolve Resolver, about Operation) (said Resolution, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: it panicked: %v", errVain, reason)
		}
	}()
	said, err = resolve(ctx, about)
	if err == nil && said.Decision != Happened && said.Decision != NotBegun {
		err = errVain
	}
	return said, err
}

// errVain is what a resolver says that does not know.
var errVain = errors.New("the resolver says neither completed nor not-begun")

// settleResolved settles, and again where it is not known whether it did: a repeat is harmless.
func (t *Tokens) settleResolved(ctx context.Context, operation string, said Resolution) (err error) {
	for range 3 {
		if err = t.Settle(ctx, operation, said); !errors.Is(err, redisstore.ErrUnknownOutcome) {
			return err
		}
	}
	return err
}

// resolved logs the end of a question, and tells [Config].Resolved.
func (t *Tokens) resolved(about Operation, asked int, how Decision, err error) {
	attributes := []any{"operation", about.Name, "route", about.Route, "asked", asked}
	if err != nil {
		how = ""
		attributes = append(attributes, "error", err)
		t.log.Warn("idempotency: a resolver was asked in vain; the operation stays in doubt, and it is asked again", attributes...)
	} else {
		t.log.Info("idempotency: an operation in doubt is resolved", append(attributes, "decision", string(how))...)
	}
	if t.tellResolved != nil {
		t.tellResolved(about, how)
	}
}

// sweep looks at the list of operations in doubt until the asker is closed.
func (a *asker) sweep() {
	every := sweepEvery
	if a.tokens.store.Mode() == redisstore.Cluster {
		every = sweepCluster
	}
	cursor := ""
	for a.ctx.Err() == nil {
		var err error
		if cursor, err = a.look(cursor); err != nil && a.ctx.Err() == nil {
			a.tokens.log.WarnContext(a.ctx, "idempotency: the list of operations in doubt cannot be read; trying on", "error", err)
		}
		select {
		// processes that start together do not look together
		case <-time.After(every/2 + rand.N(every)):
		case <-a.ctx.Done():
		}
	}
}

// look asks about a page of the list, of operations whose routes have a resolver, and returns where
// the next look begins: its cost does not grow with the list.
func (a *asker) look(cursor string) (next string, err error) {
	list, next, err := a.tokens.InDoubt(a.ctx, DoubtPage{Cursor: cursor, Max: maxScanned})
	for _, one := range list {
		a.ask(a.resolverOf(one.Route), one.Name)
	}
	return next, err
}

// close ends all questions, and waits until they have ended, or until the context ends.
func (a *asker) close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.end()
	ended := make(chan struct{})
	go func() { a.asking.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
