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

	mu       sync.Mutex
	lanes    map[string]*lane // by the name of the route
	sweeping bool
	closed   bool
}

// lane is the questions of one route: those of a resolver that hangs delay no other route's.
type lane struct {
	resolve Resolver        // of the operations on the list; nil = they are not resolved
	slots   chan struct{}   // questions under way
	waiting map[string]bool // operations, those under way included
}

const (
	resolveTime  = 10 * time.Second // for one question
	questions    = 16               // of a route at once
	maxLanes     = 10_000           // routes whose doubts on the list are resolved
	maxQuestions = 200              // of a route that wait: the list has the others
	sweepEvery   = 5 * time.Second  // how often the list is looked at
	sweepCluster = time.Minute      // the same, where it costs a script in each slot
)

func newAsker(t *Tokens) *asker {
	a := &asker{tokens: t, lanes: map[string]*lane{}}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a
}

// lane is the lane of a route. A route without a name, or whose name is cut on the list so that
// two could look alike, shares one with its like, as all beyond a bound do.
func (a *asker) lane(route string) (of *lane, hasItsOwn bool) {
	if shownRoute(route+".") != route+"." || a.lanes[route] == nil && len(a.lanes) >= maxLanes {
		route = ""
	}
	if a.lanes[route] == nil {
		a.lanes[route] = &lane{slots: make(chan struct{}, questions), waiting: map[string]bool{}}
	}
	return a.lanes[route], route != ""
}

// answersFor has the operations of a route on the list resolved from now on; a nil resolver ends
// that. The first resolver begins the looks at the list.
func (a *asker) answersFor(route string, resolve Resolver) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if resolve == nil && a.lanes[route] == nil {
		return
	}
	of, hasItsOwn := a.lane(route)
	if !hasItsOwn {
		return
	}
	of.resolve = resolve
	if resolve != nil && !a.sweeping && !a.closed {
		a.sweeping = true
		a.asking.Go(a.sweep)
	}
}

// ask has a route's resolver asked about an operation, if it is not nil. It does not wait.
func (a *asker) ask(route string, resolve Resolver, operation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if resolve == nil || a.closed {
		return
	}
	of, _ := a.lane(route)
	if of.waiting[operation] || len(of.waiting) >= maxQuestions {
		return
	}
	of.waiting[operation] = true
	a.asking.Go(func() {
		defer a.asked(of, operation)
		select {
		case of.slots <- struct{}{}:
			defer func() { <-of.slots }()
			a.resolve(operation, resolve)
		case <-a.ctx.Done():
		}
	})
}

// askOf asks about an operation on the list, if its claim allows it and its route has a resolver.
func (a *asker) askOf(o Operation) {
	if !o.asks {
		return
	}
	var resolve Resolver
	a.mu.Lock()
	if of := a.lanes[o.Route]; of != nil {
		resolve = of.resolve
	}
	a.mu.Unlock()
	a.ask(o.Route, resolve, o.Name)
}

func (a *asker) asked(of *lane, operation string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(of.waiting, operation)
}

// resolve asks about one operation, unless another process does.
func (a *asker) resolve(operation string, resolve Resolver) {
	owner := secret.New()
	begun, err := a.tokens.BeginResolving(a.ctx, operation, owner, resolveTime+5*time.Second)
	if err == nil {
		err = a.settle(operation, begun, resolve)
	}
	if err != nil && (uncertain(err) || begun.Asked > 0) {
		a.tokens.log.WarnContext(a.ctx, "idempotency: an operation stays in doubt, and its resolver is asked again",
			"operation", operation, "asked", begun.Asked, "error", err)
		// if it is not told, the lease ends
		_ = a.tokens.EndResolving(context.WithoutCancel(a.ctx), operation, owner)
	}
}

// settle asks a resolver about an operation that this process may resolve, and settles it.
func (a *asker) settle(operation string, begun Resolving, resolve Resolver) error {
	about, err := a.tokens.Operation(a.ctx, operation)
	if err != nil {
		return err
	}
	about.Fence = begun.Fence
	said, err := question(a.ctx, resolve, about)
	if err == nil {
		said.LeaseToken = begun.LeaseToken
		err = a.tokens.settleResolved(a.ctx, operation, said)
	}
	if err != nil {
		said.Decision = ""
	} else {
		a.tokens.log.InfoContext(a.ctx, "idempotency: an operation in doubt is resolved",
			"operation", operation, "route", about.Route, "asked", begun.Asked, "decision", string(said.Decision))
	}
	if a.tokens.tellResolved != nil {
		a.tokens.tellResolved(about, said.Decision)
	}
	return err
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
	if err == nil && said.Decision != DecisionHappened && said.Decision != DecisionNotBegun {
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

// sweep looks at the list of operations in doubt until the asker is closed.
func (a *asker) sweep() {
	every := sweepEvery
	if a.tokens.store.Mode() == redisstore.ModeCluster {
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
	list, next, err := a.tokens.inDoubt(a.ctx, doubtPage{Cursor: cursor, Max: maxScanned, passNewer: true})
	for _, one := range list {
		a.askOf(one)
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
