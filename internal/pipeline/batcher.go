package pipeline

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/step"
)

// Calls to one server share round trips: a call that finds the server idle goes out by itself, at
// once and from its own goroutine. A call that finds others under way joins those that wait, and
// they go out together in one pipeline when one that is under way has ended, or after a gap if that
// takes long. So a lone caller pays nothing, and many callers pay for few round trips. What each
// call decides does not change: Redis runs the scripts of a pipeline one by one.
const (
	maxBatches = 8   // pipelines under way to one server
	maxCalls   = 256 // calls in one of them
	// bytes of the calls in one of them, with what their replies are known to take: what one call
	// waits for at most because of others.
	maxBytes   = 256 << 10
	maxPending = 1024 // keys of [Pending] in one of them
	burst      = 32   // calls that do not wait for a pipeline to end
	// how long calls wait for a pipeline to end before they go out beside it.
	batchGap = 250 * time.Microsecond
	// the same for keys, where the server is near: their next pipeline is the larger for it.
	pendingGap = 4 * time.Millisecond
	// what the quickest of many pipelines takes at most where the server is near.
	nearby = time.Millisecond
)

// batchers has a batcher for each server and number of replicas to wait for.
type batchers struct {
	mu      sync.RWMutex
	by      map[destination]*batcher
	senders senders
	large   chan struct{} // one place for each large call under way

	// What is used again. It is of one store, since a channel must not go from one bubble of
	// testing/synctest to another.
	increments sync.Pool // of *increment
	requests   sync.Pool // of *request

	deadline atomic.Pointer[deadline] // of the calls that have come last
}

func newBatchers() *batchers {
	return &batchers{by: map[destination]*batcher{}, large: make(chan struct{}, largeAtOnce)}
}

type destination struct {
	node *redis.Client
	ack  int
}

func (c *batchers) to(d destination, store *Engine) *batcher {
	c.mu.RLock()
	found := c.by[d]
	c.mu.RUnlock()
	if found != nil {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[d] == nil {
		maps.DeleteFunc(c.by, func(d destination, _ *batcher) bool { return isClosed(d.node) })
		c.by[d] = &batcher{destination: d, store: store, senders: &c.senders}
	}
	return c.by[d]
}

// batcher shares the round trips to one server. It is safe for concurrent use.
type batcher struct {
	destination

	store   *Engine // or another view of it that waits for as many replicas
	senders *senders

	mu      sync.Mutex
	batches int // direct calls and pipelines under way
	waiting []*job
	pending []Pending
	gap     *time.Timer

	quickest time.Duration // of many pipelines
}

// senders are the goroutines that send, or ask for facts.
type senders struct {
	mu     sync.RWMutex
	closed bool
	open   sync.WaitGroup
}

// start starts one. After close its connections are closed: it only tells its calls so.
func (s *senders) start(send func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		go send()
		return
	}
	s.open.Go(send)
}

// close waits for those that were started before.
func (s *senders) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.open.Wait()
}

// job is a call that waits for its pipeline or is in it.
type job struct {
	call  *call
	words []any
	cmd   redis.Cmder  // nil until it is sent
	state atomic.Int32 // queued, then begun or left
	reply []string
	err   error
	done  chan struct{} // has room for the one message that tells it
}

// waiting is the call's job, ready to wait for a pipeline.
func (c *call) waiting(words []any) *job {
	c.job.words = words
	c.job.state.Store(queued)
	return c.job
}

const (
	queued int32 = iota
	begun        // it may have been sent from now on
	left         // its caller has gone, and it is not sent
)

// do sends a call, by itself or with others, and returns what Redis answered.
func (c *batcher) do(ctx context.Context, call *call, words []any) ([]string, error) {
	c.mu.Lock()
	if c.batches == 0 {
		c.batches++
		c.mu.Unlock()
		defer c.directEnded()
		return c.direct(ctx, call, words)
	}
	j := call.waiting(words)
	c.waiting = append(c.waiting, j)
	c.calledLocked()
	c.mu.Unlock()
	step.At("pipeline: waits")
	return c.wait(ctx, j)
}

func (c *batcher) direct(ctx context.Context, call *call, words []any) ([]string, error) {
	if len(c.store.observers) == 0 {
		return c.store.alone(ctx, c.node, call, words)
	}
	began := time.Now()
	reply, err := c.store.alone(ctx, c.node, call, words)
	c.store.observers.batchSent(1, time.Since(began))
	return reply, err
}

func (c *batcher) waitLocked() int { return len(c.waiting) + len(c.pending) }

// calledLocked is called for a new waiting call. It starts a pipeline if that is better than to
// wait for one to end.
func (c *batcher) calledLocked() {
	switch n := c.waitLocked(); {
	// so that the server works on one while this process writes and reads others
	case c.batches == 0, len(c.waiting) >= burst && c.batches < maxBatches:
		c.batches++
		c.senders.start(c.sendBatches)
	case n == 1, len(c.waiting) == 1:
		c.armLocked()
	}
}

// endedLocked records how long a pipeline took. The quickest counts, since slower ones depend on
// their size and on the machine's load; it is forgotten slowly.
func (c *batcher) endedLocked(took time.Duration) {
	c.quickest = min(took, c.quickest+(took-c.quickest)/256)
}

// deadline is that of calls which came within a 128th of their timeout. They share a timer, since
// one for each call would cost more than the rest of its waiting.
type deadline struct {
	at     time.Time // of the first of them
	passed chan struct{}
}

// passed is closed at a call's deadline, or up to a 128th of the timeout sooner: later than the
// end of a pipeline of such calls.
func (c *batchers) passed(at time.Time, timeout time.Duration) <-chan struct{} {
	if last := c.deadline.Load(); last != nil && !at.Before(last.at) && at.Sub(last.at) < timeout/128 {
		return last.passed
	}
	d := &deadline{at, make(chan struct{})}
	time.AfterFunc(time.Until(at), func() { close(d.passed) })
	c.deadline.Store(d)
	return d.passed
}

// wait returns the job's reply, within the context and the call's own deadline: the pipeline may
// have calls that were asked for later, and ends with the last of them. A caller that gives up
// leaves a job that has not sent; one that has may be sent at any time, so it counts as sent.
func (c *batcher) wait(ctx context.Context, j *job) ([]string, error) {
	passed := c.store.batchers.passed(j.call.deadline, c.store.timeout)
	var err error
	select {
	case <-j.done:
		return j.reply, j.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-passed:
		err = context.DeadlineExceeded
	}
	step.At("pipeline: gives up")
	j.call.abandoned = true // its sender has it in its hands
	if j.state.CompareAndSwap(queued, left) {
		return nil, err
	}
	step.At("pipeline: gave up what may be sent")
	if j.state.Load() == left { // its sender has seen the deadline as well
		<-j.done
		return j.reply, j.err
	}
	select {
	case <-j.done:
		return j.reply, j.err
	default:
		j.call.sent.Store(true)
		return nil, err
	}
}

// armLocked bounds how long the waiting calls wait.
func (c *batcher) armLocked() {
	gap := batchGap
	if len(c.waiting) == 0 && c.quickest < nearby {
		gap = pendingGap
	}
	if c.gap == nil {
		c.gap = time.AfterFunc(gap, c.overdue)
		return
	}
	c.gap.Reset(gap)
}

// overdue starts one more pipeline for calls that have waited long enough.
func (c *batcher) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitLocked() > 0 && c.batches < maxBatches {
		c.batches++
		c.senders.start(c.sendBatches)
	}
}

// directEnded ends a direct call; its place among the pipelines goes to waiting calls.
func (c *batcher) directEnded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitLocked() > 0 {
		c.senders.start(c.sendBatches)
		return
	}
	c.batches--
}
