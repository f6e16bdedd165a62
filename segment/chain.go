package segment

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// chain is the ranges of one tag: the current one, which ids are drawn from, and the ready ones
// after it. It begins with an empty one.
//
// Callers meet the mutex only where a range ends or its mark is passed. A goroutine that holds it
// waits for nothing. Where both are held, Segments.mu is taken first.
type chain struct {
	segments *Segments
	name     string
	owner    string // whose quota it counts against
	tag      *Tag   // the handle that all share

	mu      sync.Mutex
	known   bool // the source has given a range; changes only while segments.mu is held as well
	gone    bool // it is not in use any more, for good
	current *node
	ahead   []*node
	crossed int64 // ids of ranges that are used up

	attempt  *attempt // under way; nil = none
	retry    *time.Timer
	failures int // in a row
	starving bool
	fences   fences
	pace     pace
	use      use
	counts   counts
}

// use is the last observed use of a tag.
type use struct {
	drawn int64
	at    time.Time
}

func newChain(s *Segments, name, owner string, seen fences) *chain {
	c := &chain{segments: s, name: name, owner: owner, tag: &Tag{segments: s, name: name}, current: empty(), fences: seen}
	c.use.at = time.Now()
	c.tag.chain.Store(c)
	c.tag.head.Store(c.current)
	return c
}

// nextNode finds the node after one that is used up, or was another chain's, and waits for it.
// errGone: there is none in this chain.
func (c *chain) nextNode(ctx context.Context, n *node) (*node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.gone:
			return nil, errGone
		case c.known && c.current != n:
			return c.current, nil
		case len(c.ahead) > 0:
			c.crossLocked()
			c.prefetchLocked()
			return c.current, nil
		case ctx.Err() != nil:
			return nil, starved(ctx)
		}
		if err := c.awaitLocked(ctx, c.urgeLocked()); err != nil {
			return nil, err
		}
	}
}

// crossLocked moves the chain to the next range.
func (c *chain) crossLocked() {
	c.current.end()
	c.crossed += c.current.count
	c.current, c.ahead = c.ahead[0], c.ahead[1:]
	c.use.at = time.Now()
}

// marked fetches the next range, after the mark of a node was passed.
func (c *chain) marked(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.seen()
	c.prefetchLocked()
}

// awaitLocked waits for the end of an attempt, without the mutex.
func (c *chain) awaitLocked(ctx context.Context, a *attempt) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	step.At("segment: waits for an attempt")
	defer step.At("segment: waited for an attempt")
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return starved(ctx)
	case <-c.segments.ctx.Done():
		return ErrClosed
	}
}

func starved(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrStarved, context.Cause(ctx)) }

func (c *chain) drawnLocked() int64 { return c.crossed + c.current.used() }

// leftLocked returns how many ids are ready. The sum of ranges can exceed an int64.
func (c *chain) leftLocked() float64 {
	left := float64(c.current.left())
	for _, n := range c.ahead {
		left += float64(n.left())
	}
	return left
}

// endLocked ends the chain: no id of it is drawn any more. It returns how many ids are lost.
func (c *chain) endLocked() (lost float64) {
	lost = c.leftLocked()
	c.gone = true
	for _, n := range append(c.ahead, c.current) {
		n.drop()
		n.end()
	}
	c.stopRetryLocked()
	return lost
}
