// Package doubt shows how many operations are in doubt, the same figures to the metrics and the
// console of one process.
package doubt

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

const (
	patience = 2 * time.Second // how long a scrape waits for a look, which goes on
	lookTime = time.Minute     // how long a look may take: in a cluster it asks in each slot
	kept     = 5 * time.Minute // figures are shown for so long if Redis does not answer after them
)

// The scopes that are no route of this process.
const (
	// Other is of another process, or claimed over HTTP: clients choose what those are called.
	Other  = "other"
	Unread = "unread" // more than are read one by one
)

// Figures are how many operations are in doubt.
type Figures struct {
	Operations int
	Since      time.Time // when the oldest of them came to be; the zero time = there is none
	Scopes     map[string]Scope
	at         time.Time
}

// Scope is a part of them.
type Scope struct {
	Operations int
	Since      time.Time // as of Figures; the zero time = there is none, or it is not known
}

// Watch remembers the figures for a moment, so that scrapes and pages, however many, cost Redis the
// same. It is safe for concurrent use.
type Watch struct {
	tokens *idempotency.Tokens
	every  time.Duration
	routes func() []string

	mu   sync.Mutex
	next time.Time     // when Redis may be asked again
	look chan struct{} // is closed at the end of the newest look; nil = there was none
	seen Figures
}

// New returns the watch of a process, whose routes are what it guards now. It asks Redis every ten
// seconds at most; a cluster, which has a list for each slot, every minute.
func New(store *redisstore.Store, tokens *idempotency.Tokens, routes func() []string) *Watch {
	every := 10 * time.Second
	if store.Mode() == redisstore.ModeCluster {
		every = time.Minute
	}
	return &Watch{tokens: tokens, every: every, routes: routes}
}

// Now returns the figures of now or a moment ago; false if they are unknown.
func (w *Watch) Now() (Figures, bool) {
	select {
	case <-w.looking():
	case <-time.After(patience):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen, !w.seen.at.IsZero() && time.Since(w.seen.at) < kept
}

// looking returns the newest look, which it begins if it is time for one.
func (w *Watch) looking() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.look != nil {
		select {
		case <-w.look:
		default:
			return w.look
		}
		if !time.Now().After(w.next) {
			return w.look
		}
	}
	w.look = make(chan struct{})
	go w.lookNow(w.look)
	return w.look
}

func (w *Watch) lookNow(done chan<- struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	found, err := w.tokens.Doubts(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.Now().Add(w.every)
	if err == nil {
		w.seen = w.figures(found)
	}
}

// Forget makes the next figures new ones.
func (w *Watch) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = time.Time{}
}

// figures sorts what was found by scope. Its scopes are the routes of this process and two words,
// whatever clients name.
func (w *Watch) figures(found idempotency.Doubts) Figures {
	own := w.routes()
	f := Figures{Operations: found.Operations, Scopes: map[string]Scope{Other: {}, Unread: {}}, at: time.Now()}
	for _, route := range own {
		f.Scopes[route] = Scope{}
	}
	for _, operation := range found.Oldest {
		if f.Since.IsZero() {
			f.Since = operation.Until
		}
		name := operation.Route
		if !slices.Contains(own, name) {
			name = Other
		}
		scope := f.Scopes[name]
		scope.Operations++
		if scope.Since.IsZero() {
			scope.Since = operation.Until
		}
		f.Scopes[name] = scope
	}
	f.Scopes[Unread] = Scope{Operations: found.Operations - len(found.Oldest)}
	return f
}
