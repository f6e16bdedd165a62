package idempotency

import (
	"container/heap"
	"context"
	"log/slog"
	"sync"
	"time"
)

// backlog retries jobs that outlive their request: recording an answer while Redis is away, giving
// an uncertain claim back. It is bounded by the memory that its jobs hold. A job for which there is
// no room, whose time is over, or that remains when the backlog closes, is dropped, counted and
// logged.
type backlog struct {
	dropping string // what the log says of a dropped job, "" for nothing
	limit    int    // bytes
	log      *slog.Logger
	ctx      context.Context // ends when nothing is tried any more
	cancel   context.CancelFunc
	workers  sync.WaitGroup

	mu      sync.Mutex
	waiting jobs
	busy    int            // workers
	names   map[string]int // of all jobs, those that are being tried included
	bytes   int            // the same
	dropped int64
	logged  time.Time // when the log last said that a job was dropped
	closed  bool
}

// job is one of them. Only the worker that tries it touches it.
type job struct {
	name  string                         // the record that it is about
	size  int                            // bytes that it holds
	until time.Time                      // when it cannot help any more
	try   func(ctx context.Context) bool // reports whether it is done
	wait  time.Duration                  // after the last try
	due   time.Time
}

const (
	answerRoom = 64 << 20 // bytes of answers that wait to be recorded
	claimRoom  = 16 << 20 // bytes of claims that wait to be given back
	jobSize    = 1 << 10  // bytes of a job besides what it holds, rounded up
	maxWorkers = 32       // of one backlog
	firstWait  = 100 * time.Millisecond
	lastWait   = 2 * time.Second
)

func newBacklog(dropping string, limit int, log *slog.Logger) *backlog {
	b := &backlog{dropping: dropping, limit: limit, log: log, names: map[string]int{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// add adds a job, which is tried in a tenth of a second. It reports whether there was room.
func (b *backlog) add(j *job) bool {
	j.size += jobSize
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.bytes+j.size > b.limit {
		return false
	}
	b.bytes += j.size
	b.names[j.name]++
	b.waitLocked(j, firstWait)
	if b.busy < maxWorkers {
		b.busy++
		b.workers.Go(b.work)
	}
	return true
}

func (b *backlog) waitLocked(j *job, wait time.Duration) {
	j.wait, j.due = wait, time.Now().Add(wait)
	heap.Push(&b.waiting, j)
}

// work tries jobs until none is left.
func (b *backlog) work() {
	for {
		j := b.next()
		if j == nil {
			return
		}
		select {
		case <-b.ctx.Done():
			b.tried(j, false)
		case <-time.After(time.Until(j.due)):
			b.tried(j, j.try(b.ctx))
		}
	}
}

// next returns the job that is due first; nil ends the worker.
func (b *backlog) next() *job {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || b.ctx.Err() != nil {
		b.busy--
		return nil
	}
	return heap.Pop(&b.waiting).(*job)
}

// tried records that a job was tried, and keeps it if it is not done.
func (b *backlog) tried(j *job, done bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	over := time.Now().After(j.until)
	if !done && !over {
		b.waitLocked(j, min(2*j.wait, lastWait))
		return
	}
	b.bytes -= j.size
	if b.names[j.name]--; b.names[j.name] == 0 {
		delete(b.names, j.name)
	}
	if !done {
		b.dropLocked(1)
	}
}

func (b *backlog) has(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names[name] > 0
}

func (b *backlog) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropLocked(1)
}

// dropLocked counts dropped jobs and logs them, once a second at most.
func (b *backlog) dropLocked(n int) {
	b.dropped += int64(n)
	if b.dropping != "" && time.Since(b.logged) >= time.Second {
		b.logged = time.Now()
		b.log.Error("idempotency: "+b.dropping, "jobs", n, "dropped_since_start", b.dropped, "waiting", len(b.names), "bytes", b.bytes)
	}
}

func (b *backlog) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// isShut reports whether the process is about to end, so that jobs should end as well.
func (b *backlog) isShut() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// close waits until all jobs are done, or until the context ends, and drops the remaining ones.
func (b *backlog) close(ctx context.Context) error {
	b.shut()
	done := make(chan struct{})
	go func() { b.workers.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.cancel()
	<-done
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := len(b.waiting); left > 0 {
		b.waiting, b.names, b.bytes = nil, map[string]int{}, 0
		b.logged = time.Time{}
		b.dropLocked(left)
	}
	return err
}

// end drops all jobs.
func (b *backlog) end() {
	b.cancel()
	_ = b.close(b.ctx) // it has ended
}

// jobs are a heap of jobs by when they are due.
type jobs []*job

// Len and the others implement [heap.Interface].
func (j *jobs) Len() int           { return len(*j) }
func (j *jobs) Less(a, b int) bool { return (*j)[a].due.Before((*j)[b].due) }
func (j *jobs) Swap(a, b int)      { (*j)[a], (*j)[b] = (*j)[b], (*j)[a] }

func (j *jobs) Push(x any) { *j = append(*j, x.(*job)) }

func (j *jobs) Pop() any {
	last := len(*j) - 1
	x := (*j)[last]
	(*j)[last] = nil
	*j = (*j)[:last]
	return x
}
