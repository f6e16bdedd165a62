package pipeline

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/step"
)

// sender is a goroutine that sends pipeline after pipeline, with the content of the current one.
// All of it is reused.
type sender struct {
	*batcher

	jobs    []*job
	pending []Pending
	taken   []taken
	cmds    []redis.Cmder
	reads   []redis.Cmder // of the markers
	markers markers
	took    time.Duration // by the pipeline, until it was answered; 0 = none was sent
	far     bool          // the server is
}

// sendBatches sends pipeline after pipeline while calls wait. It gives way after each that had
// increments of [Pending], so that callers that have just been answered can be in the next.
func (c *batcher) sendBatches() {
	s := &sender{batcher: c}
	for s.take() {
		step.At("pipeline: took the waiting calls")
		s.send()
		if len(s.taken) > 0 {
			s.yield()
		}
	}
}

// yield lets callers that have just been answered ask again, so that they are in the next pipeline.
// Where the server is far, a caller that misses a pipeline loses all of the time of the next one:
// there it gives way longer, for a small part of that.
func (s *sender) yield() {
	runtime.Gosched()
	if !s.far {
		return
	}
	answered := time.Now()
	for range maxYields {
		if time.Since(answered) >= s.took/32 {
			return
		}
		runtime.Gosched()
	}
}

// maxYields is how often a goroutine gives way at most, if time stands still.
const maxYields = 1000

// take takes the calls that wait, and reports whether there are any. It does not wait for more
// to come: a turn of the scheduler costs more than a small batch of scripts does.
func (s *sender) take() bool {
	c := s.batcher
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.took > 0 {
		c.endedLocked(s.took)
	}
	s.far = c.quickest >= nearby
	if c.waitLocked() == 0 {
		c.batches--
		return false
	}
	s.jobs, c.waiting = c.waiting, nil
	if n := fit(s.jobs); n < len(s.jobs) {
		s.jobs, c.waiting = s.jobs[:n:n], s.jobs[n:]
	}
	n := min(len(c.pending), maxPending)
	s.pending = append(s.pending[:0], c.pending[:n]...)
	c.pending = append(c.pending[:0], c.pending[n:]...)
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
		if i == maxCalls || i > 0 && bytes > maxBytes {
			return i
		}
	}
	return len(jobs)
}

// send runs a batch in one pipeline, with one WAIT after it if its calls ask for acknowledgement,
// and gives each call its outcome.
func (s *sender) send() {
	now := time.Now()
	s.took = 0
	batch := slices.DeleteFunc(s.jobs, func(j *job) bool { return !j.begins(now) })
	s.takePending(now)
	if len(batch) == 0 && len(s.taken) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), s.deadline(batch, now))
	defer cancel()
	trip := s.store.trip(ctx, s.node.Pipeline(), s.node, s.ack)
	s.cmds, s.reads = s.cmds[:0], s.reads[:0]
	s.markers.clear()
	for _, j := range batch {
		j.cmd = j.call.command(ctx, j.words)
		s.cmds = append(s.cmds, j.cmd)
		s.reads = s.markers.add(ctx, j.call.marker, s.reads)
	}
	for _, a := range s.taken {
		s.cmds = append(s.cmds, a.call.incr)
		s.reads = s.markers.add(ctx, a.call.marker, s.reads)
	}
	trip.add(false, s.cmds...)
	trip.add(false, s.reads...)
	acked := trip.exec(len(s.reads) > 0)
	s.took = time.Since(now)
	step.At("pipeline: has replies")
	s.store.observers.batchSent(len(batch)+len(s.taken), s.took)
	for _, j := range batch {
		j.call.together = len(batch) + len(s.taken)
		j.reply, j.err = j.call.result(j.cmd)
		s.markers.judge(j.call, &trip)
		j.err = cmp.Or(j.err, acked)
		j.done <- struct{}{}
	}
	s.finishPending(ctx, &trip, acked)
}

// markers are the markers that the calls of a pipeline depend on. There is one, except in a
// cluster.
type markers struct {
	read  map[string]*redis.StringCmd // by key
	key   string                      // that was added last
	last  Marker                      // that was judged last
	found standing
}

// add reads a marker after the commands, once for all calls that have it.
func (m *markers) add(ctx context.Context, marker Marker, reads []redis.Cmder) []redis.Cmder {
	if marker.Key == "" || marker.Key == m.key || m.read[marker.Key] != nil {
		return reads
	}
	if m.read == nil {
		m.read = map[string]*redis.StringCmd{}
	}
	read := redis.NewStringCmd(ctx, "get", marker.Key)
	m.read[marker.Key], m.key = read, marker.Key
	return append(reads, read)
}

// judge gives a call its standing, if it has a marker.
func (m *markers) judge(c *call, trip *trip) {
	switch c.marker {
	case Marker{}:
		return
	case m.last:
		c.standing, c.id = m.found, trip.id()
		return
	}
	c.judge(m.read[c.marker.Key], trip)
	m.last, m.found = c.marker, c.standing
}

func (m *markers) clear() {
	clear(m.read)
	m.key, m.last, m.found = "", Marker{}, gone
}

// begins reports whether the job goes with the next pipeline: not if its caller has gone, and not
// after the store's timeout.
func (j *job) begins(now time.Time) bool {
	if !now.Before(j.call.deadline) && j.state.CompareAndSwap(queued, left) {
		j.reply, j.err = nil, context.DeadlineExceeded
		j.done <- struct{}{} // it may be used again at once
		return false
	}
	return j.state.CompareAndSwap(queued, begun)
}

// deadline is a little before the store's timeout of the last call, so that it gets its outcome.
// Each call has its own deadline too, and so has its caller's context.
func (s *sender) deadline(batch []*job, now time.Time) time.Time {
	last := now
	for _, j := range batch {
		if j.call.deadline.After(last) {
			last = j.call.deadline
		}
	}
	if len(s.taken) > 0 {
		last = now.Add(s.store.timeout)
	}
	return last.Add(-last.Sub(now) / 50)
}
