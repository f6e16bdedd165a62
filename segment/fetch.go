package segment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// The pause after a failed fetch while no caller waits: doubled from one failure to the next, and
// drawn at random from the upper half.
const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 30 * time.Second
)

// attempt is one call to the source, one at a time for a tag. err is set before done is closed.
type attempt struct {
	plan

	done chan struct{}
	err  error
}

// urgeLocked is for a caller that found nothing: it returns the attempt under way, or a new one.
func (c *chain) urgeLocked() *attempt {
	if c.known && !c.starving {
		c.starving, c.pace.starved = true, true
		c.counts.starved++
		c.segments.totals.starved.Add(1)
	}
	if c.attempt == nil {
		c.startLocked()
	}
	return c.attempt
}

// prefetchLocked fetches in the background if a fetch is due.
func (c *chain) prefetchLocked() {
	if c.dueLocked() {
		c.startLocked()
	}
}

// dueLocked reports whether a range is missing and no fetch is under way or planned.
func (c *chain) dueLocked() bool {
	switch {
	case c.gone || c.attempt != nil || c.retry != nil:
		return false
	case len(c.ahead) == 0:
		return c.current.passed()
	}
	return len(c.ahead) < c.pace.depth
}

// startLocked starts the goroutine that fetches. It ends when nothing is due.
func (c *chain) startLocked() {
	a := c.planLocked()
	c.segments.jobs.Go(func() { c.fetch(a) })
}

func (c *chain) planLocked() *attempt {
	c.stopRetryLocked()
	now := sample{time.Now(), c.drawnLocked()}
	c.attempt = &attempt{plan: c.pace.next(&c.segments.config, now), done: make(chan struct{})}
	return c.attempt
}

func (c *chain) stopRetryLocked() {
	if c.retry != nil {
		c.retry.Stop()
		c.retry = nil
	}
}

func (c *chain) fetch(a *attempt) {
	for a != nil {
		n, least, err := c.take(a.step)
		step.At("segment: took a range")
		done := c.settle(a, n, least, err)
		step.At("segment: ended an attempt")
		c.report(done, err)
		if err != nil {
			c.segments.discard(c, err)
		}
		a = done.next
	}
}

// take asks the source for a range, and checks it.
func (c *chain) take(size int64) (n *node, least int64, err error) {
	s := c.segments
	ctx, cancel := context.WithTimeout(s.ctx, s.config.Timeout)
	defer cancel()
	r, err := s.source.Take(ctx, c.name, size)
	if err != nil {
		return nil, 0, fmt.Errorf("segment: take: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, 0, err
	}
	step.At("segment: the source gave a range")
	n = newNode(r, s.config.Ahead)
	if err := c.see(r, n); err != nil {
		return nil, 0, err
	}
	step.At("segment: saw the range")
	return n, r.Step, s.admit(c)
}

// see refuses a range that does not lie wholly above what was seen before, or is not valid any
// more.
func (c *chain) see(r Range, n *node) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Valid != nil && r.Valid.Err() != nil {
		return fmt.Errorf("%w: others may have had the ids from %d to %d", ErrWentBack, r.Lo, r.Hi)
	}
	if seen, found := c.fences.conflict(r.Lo, n.delta); found {
		c.counts.wentBack++
		c.segments.totals.wentBack.Add(1)
		return fmt.Errorf("%w: it gave %d to %d, and %d was seen before", ErrWentBack, r.Lo, r.Hi, seen)
	}
	c.fences = c.fences.raised(n.last, n.delta)
	return nil
}

// settled is the outcome of an attempt.
type settled struct {
	known    bool     // the tag is in use: there was a range
	failures int      // in a row, before this attempt
	next     *attempt // is due; nil = none
}

// settle ends an attempt.
func (c *chain) settle(a *attempt, n *node, least int64, err error) settled {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(a.done)
	c.attempt = nil
	done := settled{known: c.known && !c.gone, failures: c.failures}
	switch {
	case c.gone:
		a.err = ErrClosed // nothing else ends a chain with an attempt under way
	case err != nil:
		a.err = err
		c.failedLocked(a)
	default:
		c.arrivedLocked(a, n, least)
		if c.dueLocked() {
			done.next = c.planLocked()
		}
	}
	return done
}

// report logs the begin and the end of a row of failures. Failures of a tag that has never had a
// range are returned to the callers only.
func (c *chain) report(done settled, err error) {
	switch log := c.segments.config.Logger; {
	case !done.known:
	case err == nil && done.failures > 0:
		log.Info("segment: fetched again", "tag", c.name, "failures", done.failures)
	case err != nil && done.failures == 0:
		log.Warn("segment: a fetch failed", "tag", c.name, "error", err)
	}
}

func (c *chain) arrivedLocked(a *attempt, n *node, least int64) {
	c.failures, c.starving = 0, false
	c.counts.fetches++
	c.segments.totals.fetches.Add(1)
	c.pace.succeed(&c.segments.config, a.plan, n.count, least)
	n.use()
	c.ahead = append(c.ahead, n)
	if c.current.left() == 0 {
		c.crossLocked()
	}
}

// failedLocked plans another attempt, unless the chain is going to be discarded.
func (c *chain) failedLocked(a *attempt) {
	c.failures++
	c.counts.failures++
	c.segments.totals.failures.Add(1)
	c.pace.fail(a.plan)
	var timer *time.Timer
	timer = time.AfterFunc(backoff(c.failures), func() {
		step.At("segment: may retry")
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.retry == timer { // it was not stopped too late
			c.retry = nil
			c.prefetchLocked()
		}
	})
	c.retry = timer
}

func backoff(failures int) time.Duration {
	most := min(firstBackoff<<min(failures-1, 20), longestBackoff)
	return most/2 + rand.N(most/2) //nolint:gosec // it spreads load and hides nothing
}
