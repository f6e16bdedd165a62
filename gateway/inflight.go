package gateway

import (
	"context"
	"sync"
)

// inFlight counts what is under way, and says when nothing is any more. Unlike a sync.WaitGroup it
// may fill again while somebody waits. The zero value is empty.
type inFlight struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when the last one leaves; nil while no call waits
}

func (c *inFlight) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *inFlight) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// size is how many are inside.
func (c *inFlight) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait waits until none is inside, or the context ends.
func (c *inFlight) wait(ctx context.Context) error {
	select {
	case <-c.gone():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gone is closed when none is inside.
func (c *inFlight) gone() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	return c.empty
}
