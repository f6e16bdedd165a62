package gateway

import (
	"context"
	"sync"
)

// crowd counts what is under way, and tells when nothing is any more. Unlike a sync.WaitGroup it
// may fill again while somebody waits. The zero value is empty.
type crowd struct {
	mu    sync.Mutex
	n     int
	empty chan struct{} // closed when the last one leaves; nil while no call waits
}

func (c *crowd) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// size is how many are inside.
func (c *crowd) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// wait waits until none is inside, or the context ends.
func (c *crowd) wait(ctx context.Context) error {
	select {
	case <-c.gone():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gone is closed when none is inside.
func (c *crowd) gone() <-chan struct{} {
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
