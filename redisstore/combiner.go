package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Calls to one server share round trips: a call that finds the server idle goes out by itself, at once and from its own goroutine. A call that finds others
// under way joins those that wait, and they go out together in one pipeline when a flight lands, or after a gap if the flight is long. So a lone caller pays
// nothing, and many callers pay for few round trips. What each call decides does not change: Redis runs the scripts of a pipeline one by one.
const (
	maxFlights = 8                      // pipelines under way to one server
	maxBatch   = 256                    // calls in one of them
	crowd      = 64                     // calls that do not wait for a flight to land
	flightGap  = 250 * time.Microsecond // how long calls wait for a flight to land before they go out beside it
)

// combiners are the combiners of a store, one for each server and number of replicas to wait for.
type combiners struct {
	mu      sync.RWMutex
	by      map[destination]*combiner
	flights sync.WaitGroup

	increments sync.Pool // of *increment; of one store, since a channel must not go from one bubble of testing/synctest to another
}

type destination struct {
	node *redis.Client
	ack  int
}

func (c *combiners) to(d destination, ackTimeout time.Duration) *combiner {
	c.mu.RLock()
	found := c.by[d]
	c.mu.RUnlock()
	if found != nil {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[destination]*combiner{}
	}
	if c.by[d] == nil {
		c.by[d] = &combiner{destination: d, ackTimeout: ackTimeout, running: &c.flights}
	}
	return c.by[d]
}

// combiner shares the round trips to one server. It is safe for concurrent use.
type combiner struct {
	destination

	ackTimeout time.Duration
	running    *sync.WaitGroup // the goroutines that fly

	mu      sync.Mutex
	flights int // direct calls and pipelines under way
	waiting []*job
	gap     *time.Timer
}

// job is a call that waits for its flight or is on it.
type job struct {
	call   *call
	words  []any
	cmd    redis.Cmder  // nil until it flies
	state  atomic.Int32 // queued, then boarded or left
	reply  Reply
	err    error
	landed chan struct{} // has room for the one message that tells it
}

// boarding is a job for the call. That of an INCRBY is used again.
func (c *call) boarding(words []any) *job {
	if c.job == nil {
		return &job{call: c, words: words, landed: make(chan struct{}, 1)}
	}
	c.job.state.Store(queued)
	return c.job
}

const (
	queued  int32 = iota
	boarded       // it may have been sent from now on
	left          // its caller has gone, and it is not sent
)

// do sends a call, by itself or with others, and returns what Redis answered.
func (c *combiner) do(ctx context.Context, call *call, words []any) (Reply, error) {
	c.mu.Lock()
	if c.flights == 0 {
		c.flights++
		c.mu.Unlock()
		defer c.arrived()
		return call.alone(ctx, c.node, words)
	}
	j := call.boarding(words)
	c.waiting = append(c.waiting, j)
	switch {
	case len(c.waiting) >= crowd && c.flights < maxFlights: // so that the server works on one while this process writes and reads others
		c.flights++
		c.running.Go(c.fly)
	case len(c.waiting) == 1:
		c.armLocked()
	}
	c.mu.Unlock()
	return j.wait(ctx)
}

// wait returns the job's reply. It needs no timer: every flight ends with the store's time for a call that was asked for no later than this one. A caller
// that gives up leaves a job that has not boarded; one that has may be sent at any time, so it counts as sent.
func (j *job) wait(ctx context.Context) (Reply, error) {
	select {
	case <-j.landed:
		return j.reply, j.err
	case <-ctx.Done():
	}
	j.call.abandoned = true // the flight has it in its hands
	if j.state.CompareAndSwap(queued, left) {
		return nil, ctx.Err()
	}
	select {
	case <-j.landed:
		return j.reply, j.err
	default:
		j.call.sent.Store(true)
		return nil, ctx.Err()
	}
}

// armLocked sees to it that what waits now does not wait for long.
func (c *combiner) armLocked() {
	if c.gap == nil {
		c.gap = time.AfterFunc(flightGap, c.overdue)
		return
	}
	c.gap.Reset(flightGap)
}

// overdue starts one more flight for those that have waited long enough.
func (c *combiner) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 && c.flights < maxFlights {
		c.flights++
		c.running.Go(c.fly)
	}
}

// arrived ends a direct call; its place among the flights goes to those that wait.
func (c *combiner) arrived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		c.running.Go(c.fly)
		return
	}
	c.flights--
}

// fly sends pipeline after pipeline while calls wait.
func (c *combiner) fly() {
	for batch := c.board(); batch != nil; batch = c.board() {
		c.send(batch)
	}
}

// board takes the calls that wait, or ends the flight if there are none. It does not wait for more to come: a turn of the scheduler costs more here than a
// small batch does.
func (c *combiner) board() []*job {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.waiting
	if len(batch) == 0 {
		c.flights--
		return nil
	}
	c.waiting = nil
	if len(batch) > maxBatch {
		batch, c.waiting = batch[:maxBatch:maxBatch], batch[maxBatch:]
		c.armLocked()
	}
	return batch
}

// send runs a batch in one pipeline, with one WAIT behind it if its calls ask for acknowledgement, and tells each call what became of it.
func (c *combiner) send(batch []*job) {
	now := time.Now()
	batch = slices.DeleteFunc(batch, func(j *job) bool { return !j.boards(now) })
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), flightDeadline(batch, now))
	defer cancel()
	pipe := c.node.Pipeline()
	for _, j := range batch {
		j.cmd = j.call.command(ctx, j.words)
		_ = pipe.Process(ctx, j.cmd) // it only takes the command in
	}
	marks := readMarks(ctx, pipe, batch)
	var wait *redis.Cmd
	if c.ack > 0 {
		wait = pipe.Do(ctx, "wait", c.ack, ackPatience(ctx, c.ackTimeout).Milliseconds())
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, j := range batch {
		j.reply, j.err = j.call.result(j.cmd)
		if mark := j.call.mark; mark.Key != "" {
			j.call.unmarked = !mark.in(marks[mark.Key])
		}
		if j.err == nil && wait != nil {
			j.err = acknowledged(wait, c.ack, nil)
		}
		j.landed <- struct{}{}
	}
}

// readMarks reads each mark of the batch's calls behind them.
func readMarks(ctx context.Context, pipe redis.Pipeliner, batch []*job) map[string]*redis.StringCmd {
	var marks map[string]*redis.StringCmd
	for _, j := range batch {
		key := j.call.mark.Key
		if key == "" || marks[key] != nil {
			continue
		}
		if marks == nil {
			marks = map[string]*redis.StringCmd{}
		}
		marks[key] = pipe.Get(ctx, key)
	}
	return marks
}

// boards tells whether the job goes with the flight that is about to leave: not if its caller has gone, and not if the store's time for it is over.
func (j *job) boards(now time.Time) bool {
	if !now.Before(j.call.deadline) && j.state.CompareAndSwap(queued, left) {
		j.err = context.DeadlineExceeded
		j.landed <- struct{}{}
	}
	return j.state.CompareAndSwap(queued, boarded)
}

// flightDeadline is a little before the store's time for the first of the calls is over, so that all of them hear what happened. What a caller's own
// context allows is that caller's business alone.
func flightDeadline(batch []*job, now time.Time) time.Time {
	first := batch[0].call.deadline
	for _, j := range batch[1:] {
		if j.call.deadline.Before(first) {
			first = j.call.deadline
		}
	}
	return first.Add(-max(first.Sub(now)/50, 0))
}
