package counter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// attempts is how often a counter is put in order for one call before the call is refused.
const attempts = 4

// batch is the calls of one key that go out as one INCRBY when the one before them has landed.
type batch struct {
	by   []int64       // of each call, in the order in which they came
	sum  int64         // of all
	ttl  time.Duration // the longest that a call asks for
	done chan struct{} // closed when what follows is there

	first  int64 // the first value of all
	err    error
	single []result // of each call, where they had to go out one by one; else nil
}

type result struct {
	Range

	err error
}

// add sends a call by itself, or with those that come while another is in flight.
func (c *Counters) add(ctx context.Context, e *entry, request Request) (Range, error) {
	e.mu.Lock()
	if e.busy {
		b, i, offset := e.joinLocked(request)
		e.mu.Unlock()
		return b.wait(ctx, i, offset)
	}
	e.busy = true
	e.mu.Unlock()
	got, err := c.fly(ctx, e, request.By, request.TTL)
	c.land(e)
	return got, err
}

// joinLocked puts a call among those that wait, and tells its place there.
func (e *entry) joinLocked(request Request) (b *batch, i int, offset int64) {
	if e.pending == nil {
		e.pending = &batch{done: make(chan struct{})}
	}
	b = e.pending
	i, offset = len(b.by), b.sum
	b.by, b.sum, b.ttl = append(b.by, request.By), b.sum+request.By, max(b.ttl, request.TTL)
	return b, i, offset
}

// wait returns what the i-th call got. A caller that gives up leaves its values as a gap.
func (b *batch) wait(ctx context.Context, i int, offset int64) (Range, error) {
	select {
	case <-b.done:
	case <-ctx.Done():
		return Range{}, fmt.Errorf("counter: %w: given up while others' calls were under way: %w", redisstore.ErrUnknownOutcome, ctx.Err())
	}
	switch {
	case b.single != nil:
		return b.single[i].Range, b.single[i].err
	case b.err != nil:
		return Range{}, b.err
	}
	first := b.first + offset
	return Range{first, first + b.by[i] - 1}, nil
}

// land ends an INCRBY; those that came meanwhile go out, on a goroutine that ends when none are left.
func (c *Counters) land(e *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending == nil {
		e.busy = false
		return
	}
	c.flights.Go(func() { c.carry(e) })
}

// carry sends batch after batch while calls come. It gives way once before each, so that callers who have just been answered can be in the next.
func (c *Counters) carry(e *entry) {
	for {
		runtime.Gosched()
		e.mu.Lock()
		b := e.pending
		e.pending = nil
		e.busy = b != nil
		e.mu.Unlock()
		if b == nil {
			return
		}
		got, err := c.fly(context.Background(), e, b.sum, b.ttl)
		b.first, b.err = got.First, err
		if errors.Is(err, ErrOverflow) && len(b.by) > 1 {
			c.oneByOne(e, b)
		}
		close(b.done)
	}
}

// oneByOne is for a batch that would overflow: some of its calls need not.
func (c *Counters) oneByOne(e *entry, b *batch) {
	b.single = make([]result, len(b.by))
	for i, by := range b.by {
		b.single[i].Range, b.single[i].err = c.fly(context.Background(), e, by, b.ttl)
	}
}

// fly adds to the counter, once it was found in order. Only one at a time does for an entry. A sum that is not beyond what this process has seen is forgotten.
func (c *Counters) fly(ctx context.Context, e *entry, by int64, ttl time.Duration) (Range, error) {
	for range attempts {
		now, err := c.ready(ctx, e, ttl)
		if err != nil {
			return Range{}, err
		}
		sum, err := c.store.IncrBy(ctx, c.key(e.key), by, now.life, redisstore.Mark{Key: c.marker(e.key), Word: now.era})
		switch {
		case errors.Is(err, redisstore.ErrOtherLife), err == nil && now.seen && sum-by < now.floor:
			e.doubt()
			continue
		case err != nil:
			return Range{}, e.failed(err)
		}
		if e.saw(sum) {
			c.note(ctx, e.key)
		}
		return Range{sum - by + 1, sum}, nil
	}
	return Range{}, fmt.Errorf("%w: counter: not found in order in %d attempts; ask again", redisstore.ErrUnavailable, attempts)
}
