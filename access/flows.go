package access

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/throttled/throttled/v2"

	"github.com/coatcheck/coatcheck/redisstore"
)

// ErrTooOften is the error of a caller who asks more often than their limit allows. It comes as a
// [*TooOften].
var ErrTooOften = errors.New("access: asked too often")

// TooOften says when to ask again.
type TooOften struct{ Wait time.Duration }

// Error has no figures: the answer has them in its headers.
func (t *TooOften) Error() string { return ErrTooOften.Error() }

// RetryAfter returns Wait.
func (t *TooOften) RetryAfter() time.Duration { return t.Wait }

// Unwrap makes it an ErrTooOften.
func (t *TooOften) Unwrap() error { return ErrTooOften }

// Flow is how a principal stands.
type Flow struct {
	Size  int           // requests that may come at once after a rest
	Left  int           // of them
	Whole time.Duration // how long it takes until all of Size may come again, after all were used
	Full  time.Duration // how long it takes until all of Size may come again now
}

// Flows counts requests by principal for all servers on a store together, by the generic cell rate
// algorithm of package throttled. It is safe for concurrent use.
//
// One request of a principal costs one round trip, since each server remembers what it wrote last;
// two where another server has written since. Those that come while one is under way share the
// next. A request over the limit costs none, as long as no other server can have changed that.
//
// While the store does not answer each server counts by itself, so that all of them together let
// through as many times the limit as there are servers. They ask the store again every second.
type Flows struct {
	store *redisstore.Store
	log   *slog.Logger

	mu      sync.Mutex
	flows   map[string]*flow
	serving sync.WaitGroup
}

// maxFlows is how many principals are remembered; others begin anew, from what the store says.
const maxFlows = 10_000

// NewFlows returns flows that are counted in a store. They end with Close.
func NewFlows(store *redisstore.Store, log *slog.Logger) *Flows {
	return &Flows{store: store, log: log, flows: map[string]*flow{}}
}

// Close waits for what is under way. Nothing may be counted any more.
func (f *Flows) Close() { f.serving.Wait() }

// Take counts one request. The error is a [*TooOften], or that of a context that ended.
func (f *Flows) Take(ctx context.Context, principal string, limit Limit) (Flow, error) {
	one := f.of(principal)
	ask := &asked{limit: limit, told: make(chan struct{})}
	if one.join(ask) { // none is under way but this one
		one.serve(context.WithoutCancel(ctx))
	}
	select {
	case <-ask.told:
		return ask.flow, ask.err
	case <-ctx.Done():
		return Flow{}, ctx.Err()
	}
}

func (f *Flows) of(principal string) *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.flows[principal]
	if one == nil {
		if len(f.flows) >= maxFlows {
			clear(f.flows)
		}
		one = &flow{servers: &f.serving, memory: memory{store: f.store, log: f.log, keys: []string{f.store.Key("rate", redisstore.Digest(principal))}, until: unknown}}
		f.flows[principal] = one
	}
	return one
}

// asked is a request that waits to be counted.
type asked struct {
	limit Limit
	flow  Flow
	err   error
	told  chan struct{}
}

// flow is one principal. One goroutine at a time speaks with the store for it.
type flow struct {
	memory  memory
	servers *sync.WaitGroup

	mu      sync.Mutex
	serving bool
	waiting []*asked
}

// join puts a request in line, and reports whether it is to serve the line.
func (f *flow) join(ask *asked) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, ask)
	first, f.serving = !f.serving, true
	return first
}

// serve counts those in line. Those that came meanwhile are served by a goroutine of their own, so
// that no request waits for the others.
func (f *flow) serve(ctx context.Context) {
	f.mu.Lock()
	crowd := f.waiting
	f.waiting = nil
	f.mu.Unlock()
	for len(crowd) > 0 {
		n := alike(crowd)
		f.count(ctx, crowd[:n])
		crowd = crowd[n:]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.serving = len(f.waiting) > 0; f.serving {
		f.servers.Go(func() { f.serve(ctx) })
	}
}

// alike is how many at the head of the line have the same limit.
func alike(crowd []*asked) int {
	n := 1
	for n < len(crowd) && crowd[n].limit == crowd[0].limit {
		n++
	}
	return n
}

// count counts several requests at once: all of them if there is room for all, else as many as
// there is room for.
func (f *flow) count(ctx context.Context, crowd []*asked) {
	for len(crowd) > 0 {
		n := min(len(crowd), crowd[0].limit.burst()+1)
		limited, result, err := f.memory.take(ctx, crowd[0].limit, n)
		for limited && n > 1 {
			n = max(1, min(n-1, result.Remaining))
			limited, result, err = f.memory.take(ctx, crowd[0].limit, n)
		}
		if limited {
			n = len(crowd) // there is no room for one: none for any
		}
		tell(crowd[:n], limited, result, err)
		crowd = crowd[n:]
	}
}

func tell(crowd []*asked, limited bool, result throttled.RateLimitResult, err error) {
	for i, one := range crowd {
		size := one.limit.burst() + 1
		one.flow = Flow{Size: size, Left: max(result.Remaining, 0), Whole: time.Duration(size) * one.limit.every(), Full: result.ResetAfter}
		if limited {
			one.err = &TooOften{max(result.RetryAfter, one.limit.every()/2, time.Millisecond)}
			one.flow.Left = 0
		} else {
			one.flow.Left += len(crowd) - 1 - i
		}
		// others were faster each time: the principal asks at very many servers at once
		if err != nil {
			one.err = &TooOften{time.Second}
		}
		close(one.told)
	}
}
