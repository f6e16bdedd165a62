package pipeline

import (
	"cmp"
	"context"
	"time"

	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// Pending is a key whose increments go out with those of other keys, in one pipeline and without a
// goroutine of their own. Its methods are called by the goroutine that sends the pipeline, one
// after the other: they must not block, and must not call the store except [Queue.Submit].
type Pending interface {
	// Take is called when the pipeline is about to be sent, and returns the addition. If ok is
	// false, nothing is added, and Done is not called.
	Take() (Addition, bool)
	// Done is called once for each addition, with what [Engine.IncrBy] would have answered.
	Done(sum int64, err error)
}

// Addition is one INCRBY: of a key, at a place and under a marker, as [Engine.IncrBy] takes them.
type Addition struct {
	Key    string
	By     int64
	Place  Place
	Marker Marker
}

// Queue is where keys wait for the next pipeline to a server. The zero Queue leads nowhere. It is
// safe for concurrent use.
type Queue struct{ to *batcher }

// Queue returns the queue of a server. Where a cluster is moving the key away from it, that leads
// nowhere.
func (s *Engine) Queue(place Place) Queue {
	if place.node == nil || place.asking {
		return Queue{}
	}
	return Queue{s.batchers.to(destination{place.node, s.ackAt(place.node)}, s)}
}

// SubmitIfBusy is Submit where calls to the server are under way, so that one more goes better with
// others than by itself, and reports whether it was submitted.
func (q Queue) SubmitIfBusy(p Pending) bool { return q.submit(p, 1) }

// Submit adds a key to the next pipeline, and reports whether the queue leads anywhere. A key must
// not wait twice.
func (q Queue) Submit(p Pending) bool { return q.submit(p, 0) }

// submit adds a key where at least so many calls and pipelines are under way.
func (q Queue) submit(p Pending, batches int) bool {
	if q.to == nil {
		return false
	}
	q.to.mu.Lock()
	defer q.to.mu.Unlock()
	if q.to.batches < batches {
		return false
	}
	q.to.pending = append(q.to.pending, p)
	q.to.calledLocked()
	return true
}

// taken is a key in a pipeline, and its INCRBY.
type taken struct {
	*increment

	pending Pending
	sum     int64 // what it came to
	err     error
}

// takePending takes the additions of the waiting keys.
func (s *sender) takePending(now time.Time) {
	s.taken = s.taken[:0]
	for i, pending := range s.pending {
		s.pending[i] = nil
		add, goes := pending.Take()
		switch {
		case !goes:
		case add.Place.node != s.node:
			pending.Done(0, ErrOtherIncarnation)
		default:
			in := s.store.increment()
			in.start(s.store, add.Key, add.By, add.Place, add.Marker, now)
			s.taken = append(s.taken, taken{increment: in, pending: pending})
		}
	}
}

// finishPending gives each key the outcome of its addition. acked is the error of the shared
// acknowledgement.
func (s *sender) finishPending(ctx context.Context, trip *trip, acked error) {
	for i := range s.taken {
		a := &s.taken[i]
		_, err := a.call.result(a.call.incr)
		s.markers.judge(&a.call, trip)
		a.sum, a.err = a.verdict(ctx, s.store, cmp.Or(err, acked))
	}
	if len(s.store.observers) > 0 && len(s.taken) > 0 {
		s.observePending(ctx)
	}
	for i, a := range s.taken {
		s.taken[i] = taken{}
		s.store.batchers.increments.Put(a.increment)
		a.pending.Done(a.sum, a.err)
	}
}

// observePending tells the observers, before the keys themselves, so that a caller that has its
// answer finds it counted.
func (s *sender) observePending(ctx context.Context) {
	added := 0
	for _, a := range s.taken {
		if a.err == nil {
			added++
			continue
		}
		s.store.observers.ended(ctx, observe.Call{Op: observe.OpIncrBy, N: 1, Took: s.took, Err: a.err})
	}
	if added > 0 {
		s.store.observers.ended(ctx, observe.Call{Op: observe.OpIncrBy, N: added, Took: s.took})
	}
}
