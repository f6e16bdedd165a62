package pipeline

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Calls to one server share round trips: a call that finds the server idle goes out by itself, at
// once and from its own goroutine. A call that finds others under way joins those that wait, and
// they go out together in one pipeline when a flight lands, or after a gap if the flight is long.
// So a lone caller pays nothing, and many callers pay for few round trips. What each call decides
// does not change: Redis runs the scripts of a pipeline one by one.
const (
	maxFlights = 8   // pipelines under way to one server
	maxBatch   = 256 // calls in one of them
	// bytes of the calls in one of them, with what their replies are known to take: what one call
	// waits for at most because of others.
	maxBytes  = 256 << 10
	maxRiders = 1024 // riders in one of them
	crowd     = 32   // calls that do not wait for a flight to land
	// how long calls wait for a flight to land before they go out beside it.
	flightGap = 250 * time.Microsecond
	// the same for riders, where the way is short: their next flight is the larger for it.
	riderGap = 4 * time.Millisecond
	// what the quickest of many flights takes at most where the way is short.
	shortWay = time.Millisecond
)

// combiners are the combiners of a store, one for each server and number of replicas to wait for.
type combiners struct {
	mu      sync.RWMutex
	by      map[destination]*combiner
	flights sync.WaitGroup
	large   chan struct{} // one place for each large call under way

	// What is used again. It is of one store, since a channel must not go from one bubble of
	// testing/synctest to another.
	increments sync.Pool // of *increment
	trips      sync.Pool // of *trip
}

func newCombiners() *combiners {
	return &combiners{by: map[destination]*combiner{}, large: make(chan struct{}, largeAtOnce)}
}

type destination struct {
	node *redis.Client
	ack  int
}

func (c *combiners) to(d destination, store *Engine) *combiner {
	c.mu.RLock()
	found := c.by[d]
	c.mu.RUnlock()
	if found != nil {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[d] == nil {
		maps.DeleteFunc(c.by, func(d destination, _ *combiner) bool { return isClosed(d.node) })
		c.by[d] = &combiner{destination: d, store: store, running: &c.flights}
	}
	return c.by[d]
}

// combiner shares the round trips to one server. It is safe for concurrent use.
type combiner struct {
	destination

	store   *Engine         // or another view of it that waits for as many replicas
	running *sync.WaitGroup // the goroutines that fly

	mu      sync.Mutex
	flights int // direct calls and pipelines under way
	waiting []*job
	riders  []Rider
	gap     *time.Timer

	quickest time.Duration // of many flights
}

// job is a call that waits for its flight or is on it.
type job struct {
	call   *call
	words  []any
	cmd    redis.Cmder  // nil until it flies
	state  atomic.Int32 // queued, then boarded or left
	reply  []string
	err    error
	landed chan struct{} // has room for the one message that tells it
	late   *time.Timer   // of the call's deadline; nil until it waits
}

// boarding is the call's job, ready to wait for a flight.
func (c *call) boarding(words []any) *job {
	c.job.words = words
	c.job.state.Store(queued)
	return c.job
}

const (
	queued  int32 = iota
	boarded       // it may have been sent from now on
	left          // its caller has gone, and it is not sent
)

// do sends a call, by itself or with others, and returns what Redis answered.
func (c *combiner) do(ctx context.Context, call *call, words []any) ([]string, error) {
	c.mu.Lock()
	if c.flights == 0 {
		c.flights++
		c.mu.Unlock()
		defer c.arrived()
		return c.direct(ctx, call, words)
	}
	j := call.boarding(words)
	c.waiting = append(c.waiting, j)
	c.calledLocked()
	c.mu.Unlock()
	return j.wait(ctx)
}

// direct sends a call by itself.
func (c *combiner) direct(ctx context.Context, call *call, words []any) ([]string, error) {
	if len(c.store.observers) == 0 {
		return call.alone(ctx, c.node, words)
	}
	began := time.Now()
	reply, err := call.alone(ctx, c.node, words)
	c.store.observers.flew(1, time.Since(began))
	return reply, err
}

func (c *combiner) waitLocked() int { return len(c.waiting) + len(c.riders) }

// calledLocked is called when one more waits, and starts a flight where that is better than to wait
// for one to land.
func (c *combiner) calledLocked() {
	switch n := c.waitLocked(); {
	// so that the server works on one while this process writes and reads others
	case c.flights == 0, len(c.waiting) >= crowd && c.flights < maxFlights:
		c.flights++
		c.running.Go(c.fly)
	case n == 1, len(c.waiting) == 1:
		c.armLocked()
	}
}

// landedLocked notes how long a flight took. The quickest counts, since what others take is a
// matter of their size and of who else uses the machine; it is forgotten slowly.
func (c *combiner) landedLocked(took time.Duration) {
	c.quickest = min(took, c.quickest+(took-c.quickest)/256)
}

// wait returns the job's reply, within the context and the call's own deadline: the flight may have
// calls that were asked for later, and ends with the last of them. A caller that gives up leaves a
// job that has not boarded; one that has may be sent at any time, so it counts as sent.
func (j *job) wait(ctx context.Context) ([]string, error) {
	if j.late == nil {
		j.late = time.NewTimer(time.Until(j.call.deadline))
	} else {
		j.late.Reset(time.Until(j.call.deadline))
	}
	defer j.late.Stop()
	var err error
	select {
	case <-j.landed:
		return j.reply, j.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-j.late.C:
		err = context.DeadlineExceeded
	}
	j.call.abandoned = true // the flight has it in its hands
	if j.state.CompareAndSwap(queued, left) {
		return nil, err
	}
	if j.state.Load() == left { // the flight has seen the deadline as well
		<-j.landed
		return j.reply, j.err
	}
	select {
	case <-j.landed:
		return j.reply, j.err
	default:
		j.call.sent.Store(true)
		return nil, err
	}
}

// armLocked sees to it that what waits now does not wait for long.
func (c *combiner) armLocked() {
	gap := flightGap
	if len(c.waiting) == 0 && c.quickest < shortWay {
		gap = riderGap
	}
	if c.gap == nil {
		c.gap = time.AfterFunc(gap, c.overdue)
		return
	}
	c.gap.Reset(gap)
}

// overdue starts one more flight for those that have waited long enough.
func (c *combiner) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitLocked() > 0 && c.flights < maxFlights {
		c.flights++
		c.running.Go(c.fly)
	}
}

// arrived ends a direct call; its place among the flights goes to those that wait.
func (c *combiner) arrived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitLocked() > 0 {
		c.running.Go(c.fly)
		return
	}
	c.flights--
}
