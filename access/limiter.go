package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/throttled/throttled/v2"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/redisstore"
)

// ErrTooOften is the error of a caller over its limit. It comes as a [*TooOftenError].
var ErrTooOften = errors.New("access: asked too often")

// TooOftenError says when to ask again.
type TooOftenError struct{ Wait time.Duration }

// Error has no figures: the answer has them in its headers.
func (t *TooOftenError) Error() string { return ErrTooOften.Error() }

// RetryAfter returns Wait.
func (t *TooOftenError) RetryAfter() time.Duration { return t.Wait }

// Unwrap makes it an ErrTooOften.
func (t *TooOftenError) Unwrap() error { return ErrTooOften }

// State is a principal's use of its limit.
type State struct {
	Size  int           // requests that may come at once after a rest
	Left  int           // of them
	Whole time.Duration // how long it takes until all of Size may come again, after all were used
	Full  time.Duration // how long it takes until all of Size may come again now
}

// Limiter counts requests by principal for all servers on a store together, by the generic cell
// rate algorithm of package throttled. It is safe for concurrent use.
//
// One request of a principal costs one round trip, since each server remembers what it wrote last;
// two where another server has written since. Those that come while one is under way share the
// next. A request over the limit costs none, as long as no other server can have changed that.
//
// While the store does not answer each server counts by itself, so that all of them together let
// through as many times the limit as there are servers. They ask the store again every second.
type Limiter struct {
	store *redisstore.Store
	log   *slog.Logger

	mu         sync.Mutex
	principals map[string]*principalLimit
	serving    sync.WaitGroup
}

// maxPrincipals is how many principals are remembered; others are read from the store again.
const maxPrincipals = 10_000

// NewLimiter returns a limiter that counts in a store. It ends with Close.
func NewLimiter(store *redisstore.Store, log *slog.Logger) *Limiter {
	return &Limiter{store: store, log: log, principals: map[string]*principalLimit{}}
}

// Close waits for what is under way. Nothing may be counted any more.
func (l *Limiter) Close() { l.serving.Wait() }

// Take counts one request. The error is a [*TooOftenError], or that of a context that ended.
func (l *Limiter) Take(ctx context.Context, principal string, limit Limit) (State, error) {
	one := l.of(principal)
	ask := &asked{limit: limit, told: make(chan struct{})}
	if one.join(ask) { // none is under way but this one
		one.serve(context.WithoutCancel(ctx))
	}
	select {
	case <-ask.told:
		return ask.state, ask.err
	case <-ctx.Done():
		return State{}, ctx.Err()
	}
}

func (l *Limiter) of(principal string) *principalLimit {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.principals[principal]
	if one == nil {
		if len(l.principals) >= maxPrincipals {
			clear(l.principals)
		}
		one = &principalLimit{servers: &l.serving,
			memory: memory{store: l.store, log: l.log, keys: []string{l.store.Key("rate", names.Digest(principal))}, until: unknown}}
		l.principals[principal] = one
	}
	return one
}

// asked is a request that waits to be counted.
type asked struct {
	limit Limit
	state State
	err   error
	told  chan struct{}
}

// principalLimit counts the requests of one principal. One goroutine asks the store for it.
type principalLimit struct {
	memory  memory
	servers *sync.WaitGroup

	mu      sync.Mutex
	serving bool
	waiting []*asked
}

// join queues a request, and reports whether it is to serve the queue.
func (p *principalLimit) join(ask *asked) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = append(p.waiting, ask)
	first, p.serving = !p.serving, true
	return first
}

// serve counts the queued requests. Those that come meanwhile get their own goroutine.
func (p *principalLimit) serve(ctx context.Context) {
	p.mu.Lock()
	requests := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for len(requests) > 0 {
		n := alike(requests)
		p.count(ctx, requests[:n])
		requests = requests[n:]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serving = len(p.waiting) > 0; p.serving {
		p.servers.Go(func() { p.serve(ctx) })
	}
}

// alike returns how many requests at the head of the queue have the same limit.
func alike(requests []*asked) int {
	n := 1
	for n < len(requests) && requests[n].limit == requests[0].limit {
		n++
	}
	return n
}

// count counts several requests at once, as many as there is room for.
func (p *principalLimit) count(ctx context.Context, requests []*asked) {
	for len(requests) > 0 {
		n := min(len(requests), requests[0].limit.burst()+1)
		limited, result, err := p.memory.take(ctx, requests[0].limit, n)
		for limited && n > 1 {
			n = max(1, min(n-1, result.Remaining))
			limited, result, err = p.memory.take(ctx, requests[0].limit, n)
		}
		if limited {
			n = len(requests) // there is no room for one: none for any
		}
		tell(requests[:n], limited, result, err)
		requests = requests[n:]
	}
}

func tell(requests []*asked, limited bool, result throttled.RateLimitResult, err error) {
	for i, one := range requests {
		size := one.limit.burst() + 1
		one.state = State{Size: size, Left: max(result.Remaining, 0), Whole: time.Duration(size) * one.limit.every(),
			Full: result.ResetAfter}
		if limited {
			one.err = &TooOftenError{max(result.RetryAfter, one.limit.every()/2, time.Millisecond)}
			one.state.Left = 0
		} else {
			one.state.Left += len(requests) - 1 - i
		}
		// others were faster each time: the principal asks at very many servers at once
		if err != nil {
			one.err = &TooOftenError{time.Second}
		}
		close(one.told)
	}
}
