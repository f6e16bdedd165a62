package redisstore

import (
	"context"
	"maps"
	"runtime"
	"slices"
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
	maxFlights = 8    // pipelines under way to one server
	maxBatch   = 256  // calls in one of them
	maxRiders  = 1024 // riders in one of them
	crowd      = 32   // calls that do not wait for a flight to land
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

func (c *combiners) to(d destination, store *Store) *combiner {
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

	store   *Store          // or another view of it that waits for as many replicas
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
	reply  Reply
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
func (c *combiner) do(ctx context.Context, call *call, words []any) (Reply, error) {
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
func (c *combiner) direct(ctx context.Context, call *call, words []any) (Reply, error) {
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
	case c.flights == 0, len(c.waiting) >= crowd && c.flights < maxFlights: // so that the server works on one while this process writes and reads others
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
func (j *job) wait(ctx context.Context) (Reply, error) {
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

// flight is a goroutine that sends pipeline after pipeline, and what it carries. All of it is used
// again.
type flight struct {
	*combiner

	jobs   []*job
	riders []Rider
	aboard []aboard
	cmds   []redis.Cmder
	reads  []redis.Cmder // of the marks
	marks  marks
	took   time.Duration // from boarding to landing; 0 = nobody flew
	far    bool          // the way is long
}

// fly sends pipeline after pipeline while calls wait. It gives way after each that had riders, so
// that those who have just been answered can be in the next.
func (c *combiner) fly() {
	f := &flight{combiner: c}
	for f.board() {
		f.send()
		if len(f.aboard) > 0 {
			f.giveWay()
		}
	}
}

// giveWay lets those who have just been answered ask again. Over a long way who misses a flight
// loses all of the next one: there it gives way for a small part of that, since another processor
// may take this goroutine up at once.
func (f *flight) giveWay() {
	runtime.Gosched()
	if !f.far {
		return
	}
	landed := time.Now()
	for range mostTurns {
		if time.Since(landed) >= f.took/32 {
			return
		}
		runtime.Gosched()
	}
}

// mostTurns is how often a goroutine gives way at most, if time stands still.
const mostTurns = 1000

// board takes the calls that wait, or ends the flight if there are none. It does not wait for more
// to come: a turn of the scheduler costs more than a small batch of scripts does.
func (f *flight) board() bool {
	c := f.combiner
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.took > 0 {
		c.landedLocked(f.took)
	}
	f.far = c.quickest >= shortWay
	if c.waitLocked() == 0 {
		c.flights--
		return false
	}
	f.jobs, c.waiting = c.waiting, nil
	if len(f.jobs) > maxBatch {
		f.jobs, c.waiting = f.jobs[:maxBatch:maxBatch], f.jobs[maxBatch:]
	}
	n := min(len(c.riders), maxRiders)
	f.riders = append(f.riders[:0], c.riders[:n]...)
	c.riders = append(c.riders[:0], c.riders[n:]...)
	if c.waitLocked() > 0 {
		c.armLocked()
	}
	return true
}

// send runs a batch in one pipeline, with one WAIT behind it if its calls ask for acknowledgement,
// and tells each call what became of it.
func (f *flight) send() {
	now := time.Now()
	f.took = 0
	batch := slices.DeleteFunc(f.jobs, func(j *job) bool { return !j.boards(now) })
	f.boardRiders(now)
	if len(batch) == 0 && len(f.aboard) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), f.deadline(batch, now))
	defer cancel()
	pipe := f.node.Pipeline()
	f.cmds, f.reads = f.cmds[:0], f.reads[:0]
	f.marks.clear()
	for _, j := range batch {
		j.cmd = j.call.command(ctx, j.words)
		f.cmds = append(f.cmds, j.cmd)
		f.reads = f.marks.add(ctx, j.call.mark, f.reads)
	}
	for _, a := range f.aboard {
		f.cmds = append(f.cmds, a.call.incr)
		f.reads = f.marks.add(ctx, a.call.mark, f.reads)
	}
	_ = pipe.BatchProcess(ctx, append(f.cmds, f.reads...)...) // it only takes the commands in
	var wait *redis.Cmd
	if f.ack > 0 {
		wait = pipe.Do(ctx, "wait", f.ack, ackPatience(ctx, f.store.ackTimeout).Milliseconds())
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	f.took = time.Since(now)
	f.store.observers.flew(len(batch)+len(f.aboard), f.took)
	var acked error
	if wait != nil {
		acked = acknowledged(wait, f.ack, nil)
	}
	for _, j := range batch {
		j.call.together = len(batch) + len(f.aboard)
		j.reply, j.err = j.call.result(j.cmd)
		j.call.unmarked = !f.marks.have(j.call.mark)
		if j.err == nil {
			j.err = acked
		}
		j.landed <- struct{}{}
	}
	f.landRiders(ctx, acked)
}

// marks are what the calls of a flight have to find behind them. There are few different ones: one,
// except in a cluster.
type marks struct {
	read  map[string]*redis.StringCmd // by key
	key   string                      // that was added last
	last  Mark                        // that was looked for last
	found bool                        // whether it was there
}

// add has a mark read behind the commands, once for all calls that have it.
func (m *marks) add(ctx context.Context, mark Mark, reads []redis.Cmder) []redis.Cmder {
	if mark.Key == "" || mark.Key == m.key || m.read[mark.Key] != nil {
		return reads
	}
	if m.read == nil {
		m.read = map[string]*redis.StringCmd{}
	}
	read := redis.NewStringCmd(ctx, "get", mark.Key)
	m.read[mark.Key], m.key = read, mark.Key
	return append(reads, read)
}

// have reports whether a mark was there.
func (m *marks) have(mark Mark) bool {
	if mark.Key == "" {
		return true
	}
	if mark != m.last {
		m.last, m.found = mark, mark.in(m.read[mark.Key])
	}
	return m.found
}

func (m *marks) clear() {
	clear(m.read)
	m.key, m.last, m.found = "", Mark{}, false
}

// boards reports whether the job goes with the flight that is about to leave: not if its caller has
// gone, and not if the store's time for it is over.
func (j *job) boards(now time.Time) bool {
	if !now.Before(j.call.deadline) && j.state.CompareAndSwap(queued, left) {
		j.reply, j.err = nil, context.DeadlineExceeded
		j.landed <- struct{}{} // it may be used again at once
		return false
	}
	return j.state.CompareAndSwap(queued, boarded)
}

// deadline is a little before the store's time for the last of the calls is over, so that it hears
// what happened. Each call has its own deadline beside, and so has its caller's context.
func (f *flight) deadline(batch []*job, now time.Time) time.Time {
	last := now
	for _, j := range batch {
		if j.call.deadline.After(last) {
			last = j.call.deadline
		}
	}
	if len(f.aboard) > 0 {
		last = now.Add(f.store.timeout)
	}
	return last.Add(-last.Sub(now) / 50)
}
