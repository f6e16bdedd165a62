package counter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/redisstore"
)

// attempts is how often a counter is opened for one call before the call is refused.
const attempts = 4

// lane is the calls of one key that can go out together: one addition is under way, and the others
// wait for it to end.
type lane struct {
	busy    bool  // an addition is under way, or waits for its pipeline
	pending batch // the waiting calls: for it to end, or to be sent with it
}

// lane returns the lane of calls with this TTL.
func (e *entry) lane(ttl time.Duration) *lane {
	if ttl > 0 {
		return &e.ending
	}
	return &e.plain
}

// batch is the calls of a lane that go out as one addition, in the order in which they came. The
// zero batch has none.
type batch struct {
	first, last *waiter
	sum         int64         // of all
	ttl         time.Duration // of the first, which begins the counter if there is none
}

// waiter is a call that waits for an INCRBY, its own or another's, to end. It is reused.
type waiter struct {
	by   int64
	next *waiter

	got  Range
	err  error
	done chan struct{} // has room for the one message of the end
}

// add sends a call by itself if nothing is under way, else with waiting calls of its key, or of
// other keys.
func (c *Counters) add(ctx context.Context, e *entry, request Request) (Range, error) {
	e.mu.Lock()
	on := e.lane(request.TTL)
	if !on.busy && request.TTL == 0 && e.open.Known() && e.queue.SubmitIfBusy(e) {
		on.busy = true
		c.batches.Add(1)
	} else if !on.busy {
		on.busy = true
		e.mu.Unlock()
		step.At("counter: goes by itself")
		got, err := c.send(ctx, e, addition{by: request.By, ttl: request.TTL, attempts: attempts})
		e.ended(on)
		return got, err
	}
	w := e.joinLocked(&on.pending, request)
	e.mu.Unlock()
	step.At("counter: joined a batch")
	return c.wait(ctx, w)
}

func (e *entry) joinLocked(b *batch, request Request) *waiter {
	w, _ := e.counters.waiters.Get().(*waiter)
	if w == nil {
		w = &waiter{done: make(chan struct{}, 1)}
	}
	w.by, w.next = request.By, nil
	if b.first == nil {
		b.first, b.ttl = w, request.TTL
	} else {
		b.last.next = w
	}
	b.last, b.sum = w, b.sum+request.By
	return w
}

// wait returns the result of a call. A caller that gives up leaves its values as a gap.
func (c *Counters) wait(ctx context.Context, w *waiter) (Range, error) {
	if gone := ctx.Done(); gone == nil { // which is the quicker way to wait
		<-w.done
	} else {
		select {
		case <-w.done:
		case <-gone:
			return Range{}, fmt.Errorf("counter: %w: given up while others' calls were under way: %w", redisstore.ErrUnknownOutcome,
				ctx.Err())
		}
	}
	got, err := w.got, w.err
	c.waiters.Put(w)
	return got, err
}

// distribute gives each call of a batch its part of what was added.
func (b batch) distribute(first int64, err error) {
	for w := b.first; w != nil; {
		next := w.next // the caller may use w again once it has its result
		w.got, w.err = Range{}, err
		if err == nil {
			w.got = Range{first, first + w.by - 1}
		}
		first += w.by
		w.done <- struct{}{}
		w = next
	}
}

func (e *entry) ended(on *lane) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endedLocked(on)
}

// endedLocked ends an addition. The calls that came meanwhile go out with the next batch to the
// server, or on a goroutine of their own where the counter has to be opened, or where they have a
// TTL.
func (e *entry) endedLocked(on *lane) {
	on.busy = on.pending.first != nil
	if !on.busy {
		return
	}
	e.counters.batches.Add(1)
	if on == &e.ending || !e.open.Known() || !e.queue.Submit(e) {
		go e.goAlone(on)
	}
}

// Take takes the waiting calls into the batch that calls it.
func (e *entry) Take() (pipeline.Addition, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.readyLocked() || e.absent {
		go e.goAlone(&e.plain)
		return pipeline.Addition{}, false
	}
	e.sending, e.plain.pending, e.under = e.plain.pending, batch{}, e.stateLocked()
	return pipeline.Addition{Key: e.redisKey, By: e.sending.sum, Place: e.open, Marker: e.markerIn(e.under)}, true
}

// Done gives the calls of a batch their results. Slower work runs on another goroutine.
func (e *entry) Done(sum int64, err error) {
	step.At("counter: a batch was sent")
	e.mu.Lock()
	b, under := e.sending, e.under
	e.sending = batch{}
	fits, first := err == nil && under.before(sum, b.sum), false
	if fits {
		first = e.sawLocked(sum)
	}
	if fits && !first {
		e.endedLocked(&e.plain)
	}
	e.mu.Unlock()
	step.At("counter: judged a batch")
	switch {
	case first:
		go e.noted(b, sum)
	case fits:
		b.distribute(sum-b.sum+1, nil)
		e.counters.batches.Done()
	case err == nil:
		e.fellBehind(b.sum)
		go e.alone(b, addition{attempts: attempts - 1, stray: sum})
	case errors.Is(err, pipeline.ErrOtherIncarnation):
		e.doubt()
		go e.alone(b, addition{attempts: attempts - 1, unconfirmed: under.unconfirmed(err)})
	default:
		go func() { e.end(b, Range{}, e.failed(context.Background(), err)) }()
	}
}

// noted ends the first batch of a counter since it was opened.
func (e *entry) noted(b batch, sum int64) {
	e.counters.note(context.Background(), e.key)
	e.end(b, Range{sum - b.sum + 1, sum}, nil)
}

// goAlone sends the waiting calls.
func (e *entry) goAlone(on *lane) {
	step.At("counter: a batch goes alone")
	e.mu.Lock()
	b := on.pending
	on.pending = batch{}
	e.mu.Unlock()
	e.alone(b, addition{attempts: attempts})
}

// alone sends a batch by itself, after the counter was opened.
func (e *entry) alone(b batch, add addition) {
	add.by, add.ttl = b.sum, b.ttl
	got, err := e.counters.send(context.Background(), e, add)
	e.end(b, got, err)
}

// end ends the addition of a batch. Of a batch that would overflow some calls may still fit: they
// go out one by one.
func (e *entry) end(b batch, got Range, err error) {
	defer e.counters.batches.Done()
	on := e.lane(b.ttl)
	if !errors.Is(err, ErrOverflow) || b.first == b.last {
		e.ended(on)
		b.distribute(got.First, err)
		return
	}
	for w := b.first; w != nil; {
		one := batch{first: w, last: w, sum: w.by, ttl: b.ttl}
		w, one.first.next = w.next, nil
		got, err := e.counters.send(context.Background(), e, addition{by: one.sum, ttl: one.ttl, attempts: attempts})
		one.distribute(got.First, err)
	}
	e.ended(on)
}

type addition struct {
	by       int64
	ttl      time.Duration // with one the script adds: only it can see whether the counter ends
	attempts int
	stray    int64 // the sum that an addition before came to, and that was too small; 0 = none
	// the sum that an addition before came to in another incarnation than the one that was noted;
	// nil = none
	unconfirmed *unconfirmed
}

// unconfirmed is a sum that counts if the incarnation in which it was added turns out to continue
// the one that was noted: a promotion or a renamed history costs no value then.
type unconfirmed struct {
	pipeline.UnconfirmedError

	under state // what was known when it was sent
}

// unconfirmed returns the sum of an error, if there is one that fits the state.
func (s state) unconfirmed(err error) *unconfirmed {
	found, is := errors.AsType[*pipeline.UnconfirmedError](err)
	if !is {
		return nil
	}
	return &unconfirmed{*found, s}
}

// confirmed reports whether the state that the counter was opened in since continues that in which
// the sum was added.
func (u *unconfirmed) confirmed(now state, by int64) bool {
	return u != nil && now.era == u.under.era && now.id == u.ID && !now.anew && now.seen && now.floor >= u.Sum && u.under.before(u.Sum, by)
}

// send adds to the counter, once it was opened. Only one at a time does for a lane. A sum that is
// not above what this process has seen is forgotten, unless it turns out that it was the first of a
// counter that has begun again on purpose.
func (c *Counters) send(ctx context.Context, e *entry, add addition) (Range, error) {
	if add.ttl > 0 {
		return c.addOnce(ctx, e, Request{By: add.by, TTL: add.ttl})
	}
	for range add.attempts {
		now, err := c.ready(ctx, e, need{by: add.by})
		if err != nil {
			return Range{}, err
		}
		step.At("counter: is in order")
		sum := add.stray
		switch {
		case add.unconfirmed.confirmed(now, add.by):
			sum = add.unconfirmed.Sum
		case now.absent:
			sum, err = c.begin(ctx, e, add.by, now)
		case sum == 0 || !now.anew || now.floor != sum || sum != add.by:
			sum, err = c.engine.IncrBy(ctx, e.redisKey, add.by, now.place, e.markerIn(now))
			if err == nil && !now.before(sum, add.by) {
				add.stray = sum
				step.At("counter: a sum is too small")
				e.fellBehind(add.by)
				continue
			}
		}
		if errors.Is(err, pipeline.ErrOtherIncarnation) || errors.Is(err, errNotInOrder) {
			e.doubt()
			add.unconfirmed = now.unconfirmed(err)
			continue
		}
		if err != nil {
			return Range{}, e.failed(ctx, err)
		}
		step.At("counter: has a sum")
		if e.saw(sum) {
			c.note(ctx, e.key)
		}
		return Range{sum - add.by + 1, sum}, nil
	}
	return Range{}, errNotInOrder
}
