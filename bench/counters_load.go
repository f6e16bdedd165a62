package main

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// countLoad is callers who add to counters again and again, each to one drawn by lot.
type countLoad struct {
	client  counting
	callers int
	names   []string
}

// countSample is what a measured span gave.
type countSample struct {
	calls    int64
	rate     float64 // a second
	p50, p99 float64 // microseconds
}

// inEach is of how many calls one is timed: reading the clock is a part of what a call costs.
const inEach = 8

// each adds to every counter once, with all callers.
func (l countLoad) each(ctx context.Context) error {
	var next atomic.Int64
	errs := make([]error, l.callers)
	var running sync.WaitGroup
	for i := range l.callers {
		running.Go(func() {
			for at := next.Add(1) - 1; at < int64(max(len(l.names), l.callers)) && errs[i] == nil; at = next.Add(1) - 1 {
				_, errs[i] = l.client.incr(ctx, l.names[at%int64(len(l.names))])
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// run adds for a span. Calls that have begun within it end after it, and count.
func (l countLoad) run(ctx context.Context, span time.Duration) (countSample, error) {
	runtime.GC() // what others have left behind
	callers := make([]*caller, l.callers)
	var over atomic.Bool
	var running sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		callers[i] = &caller{countLoad: l, lot: uint64(i)*0x9e3779b97f4a7c15 + 1}
		running.Go(func() { callers[i].run(ctx, &over) })
	}
	err := pause(ctx, span)
	over.Store(true)
	running.Wait()
	sample, took := countSample{}, []time.Duration(nil)
	elapsed := time.Since(begun)
	for _, caller := range callers {
		sample.calls += caller.calls
		took = append(took, caller.took...)
		err = errors.Join(err, caller.err)
	}
	slices.Sort(took)
	sample.rate = float64(sample.calls) / elapsed.Seconds()
	sample.p50, sample.p99 = percentile(took, 0.50), percentile(took, 0.99)
	return sample, err
}

// caller is one of them.
type caller struct {
	countLoad

	lot   uint64
	calls int64
	took  []time.Duration
	err   error
}

func (c *caller) run(ctx context.Context, over *atomic.Bool) {
	for ; c.err == nil && !over.Load(); c.calls++ {
		name := c.draw()
		if c.calls%inEach != 0 {
			_, c.err = c.client.incr(ctx, name)
			continue
		}
		begun := time.Now()
		_, c.err = c.client.incr(ctx, name)
		c.took = append(c.took, time.Since(begun))
	}
}

// draw picks a name by lot (xorshift).
func (c *caller) draw() string {
	if len(c.names) == 1 {
		return c.names[0]
	}
	c.lot ^= c.lot << 13
	c.lot ^= c.lot >> 7
	c.lot ^= c.lot << 17
	return c.names[c.lot%uint64(len(c.names))]
}
