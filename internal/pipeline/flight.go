package pipeline

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

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
	took   time.Duration // from boarding to landing; 0 = none was aboard
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
	if n := fit(f.jobs); n < len(f.jobs) {
		f.jobs, c.waiting = f.jobs[:n:n], f.jobs[n:]
	}
	n := min(len(c.riders), maxRiders)
	f.riders = append(f.riders[:0], c.riders[:n]...)
	c.riders = append(c.riders[:0], c.riders[n:]...)
	if c.waitLocked() > 0 {
		c.armLocked()
	}
	return true
}

// fit returns how many of the jobs go in one pipeline.
func fit(jobs []*job) int {
	bytes := 0
	for i, j := range jobs {
		bytes += j.call.size
		if i == maxBatch || i > 0 && bytes > maxBytes {
			return i
		}
	}
	return len(jobs)
}

// send runs a batch in one pipeline, with one WAIT after it if its calls ask for acknowledgement,
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
	life := f.asked(ctx, batch)
	_ = pipe.BatchProcess(ctx, append(f.cmds, f.reads...)...) // it only takes the commands in
	var wait *redis.Cmd
	if f.ack > 0 {
		wait = pipe.Do(ctx, "wait", f.ack, ackPatience(ctx, f.store.ackTimeout).Milliseconds())
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	f.took = time.Since(now)
	f.store.observers.flew(len(batch)+len(f.aboard), f.took)
	untold := life != nil && f.store.nodes.life(f.node).told(life) != nil
	var acked error
	if wait != nil {
		acked = acknowledged(wait, f.ack, nil)
	}
	for _, j := range batch {
		j.call.together = len(batch) + len(f.aboard)
		j.reply, j.err = j.call.result(j.cmd)
		j.call.unmarked, j.call.untold = !f.marks.have(j.call.mark), untold
		if j.err == nil {
			j.err = acked
		}
		j.landed <- struct{}{}
	}
	f.landRiders(ctx, acked, untold)
}

// asked has the server say its incarnation with the marks, if a call needs that.
func (f *flight) asked(ctx context.Context, batch []*job) *redis.StringCmd {
	asks := slices.ContainsFunc(batch, func(j *job) bool { return j.call.asks() }) ||
		slices.ContainsFunc(f.aboard, func(a aboard) bool { return a.call.asks() })
	if !asks {
		return nil
	}
	life := asked(ctx)
	f.reads = append(f.reads, life)
	return life
}

// marks are what the calls of a flight have to find after them. There are few different ones: one,
// except in a cluster.
type marks struct {
	read  map[string]*redis.StringCmd // by key
	key   string                      // that was added last
	last  Mark                        // that was looked for last
	found bool                        // whether it was there
}

// add has a mark read after the commands, once for all calls that have it.
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
