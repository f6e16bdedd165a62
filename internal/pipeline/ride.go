package pipeline

import (
	"context"
	"time"

	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// Rider is a key whose increments go out with those of other keys, in one flight and without a
// goroutine of their own. Its methods are called by the flight, one after the other: they must not
// block, and must not call the store except [Line.Ride].
type Rider interface {
	// Board is called when the flight is about to leave, and tells what to add now. Where it says
	// no, nothing is added, and Land is not called.
	Board() (Addition, bool)
	// Land is called once for each addition, with what [Engine.IncrBy] would have answered.
	Land(sum int64, err error)
}

// Addition is one INCRBY: of a key, in a life and under a mark, as [Engine.IncrBy] takes them.
type Addition struct {
	Key  string
	By   int64
	Life Life
	Mark Mark
}

// Line is the way on which riders get to one server. The zero Line leads nowhere. It is safe for
// concurrent use.
type Line struct{ to *combiner }

// Line returns the way to the server of a life. Where a cluster is moving the key away from it,
// that leads nowhere.
func (s *Engine) Line(life Life) Line {
	if life.node == nil || life.asking {
		return Line{}
	}
	return Line{s.combiners.to(destination{life.node, s.ack}, s)}
}

// Join is Ride where calls to the server are under way, so that one more goes better with others
// than by itself, and reports whether it is.
func (l Line) Join(r Rider) bool {
	if l.to == nil {
		return false
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	if l.to.flights == 0 {
		return false
	}
	l.to.riders = append(l.to.riders, r)
	l.to.calledLocked()
	return true
}

// Ride puts a rider among those that wait for the next flight, and reports whether the line leads
// anywhere. A rider must not wait twice.
func (l Line) Ride(r Rider) bool {
	if l.to == nil {
		return false
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	l.to.riders = append(l.to.riders, r)
	l.to.calledLocked()
	return true
}

// aboard is a rider on a flight, and its INCRBY.
type aboard struct {
	*increment

	rider Rider
	sum   int64 // what it came to
	err   error
}

// boardRiders asks riders what to add, and returns the additions that go.
func (f *flight) boardRiders(now time.Time) {
	f.aboard = f.aboard[:0]
	for i, rider := range f.riders {
		f.riders[i] = nil
		add, goes := rider.Board()
		switch {
		case !goes:
		case !add.Life.Current() || add.Life.node != f.node:
			rider.Land(0, ErrOtherLife)
		default:
			in := f.store.increment()
			in.start(f.store, add.Key, add.By, add.Life, now)
			in.call.mark = add.Mark
			f.aboard = append(f.aboard, aboard{increment: in, rider: rider})
		}
	}
}

// landRiders tells each rider what became of its addition. acked is the error of the
// acknowledgement that all share, untold says that the server did not tell its incarnation.
func (f *flight) landRiders(ctx context.Context, acked error, untold bool) {
	for i := range f.aboard {
		a := &f.aboard[i]
		_, err := a.call.result(a.call.incr)
		a.call.unmarked, a.call.untold = !f.marks.have(a.call.mark), untold
		if err == nil {
			err = acked
		}
		a.sum, a.err = a.verdict(ctx, f.store, err)
	}
	if len(f.store.observers) > 0 && len(f.aboard) > 0 {
		f.showRiders(ctx)
	}
	for i, a := range f.aboard {
		f.aboard[i] = aboard{}
		f.store.combiners.increments.Put(a.increment)
		a.rider.Land(a.sum, a.err)
	}
}

// showRiders tells the observers, before the riders themselves, so that who has an answer finds it
// counted.
func (f *flight) showRiders(ctx context.Context) {
	added := 0
	for _, a := range f.aboard {
		if a.err == nil {
			added++
			continue
		}
		f.store.observers.ended(ctx, observe.Call{Op: observe.OpIncrBy, N: 1, Took: f.took, Err: a.err})
	}
	if added > 0 {
		f.store.observers.ended(ctx, observe.Call{Op: observe.OpIncrBy, N: added, Took: f.took})
	}
}
