package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/locking"
)

// errLost says that a lock is no longer ours.
var errLost = errors.New("it is no longer ours")

// way is how a library renews a lock and gives it back.
type way struct {
	// until is zero if the library tells no end
	renew   func(ctx context.Context) (until time.Time, err error)
	lost    func(err error) bool // reports whether it is over
	release func(ctx context.Context) error
}

// renewed is a lock that is renewed every third of its lease until it is given back.
type renewed struct {
	way

	stop    context.CancelFunc
	renewer sync.WaitGroup

	mu    sync.Mutex
	until time.Time
	err   error
}

func renew(ctx context.Context, w way, until time.Time) *renewed {
	r := &renewed{way: w, until: until}
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.renewer.Go(func() { r.keep(ctx) })
	return r
}

func (r *renewed) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(locking.TTL / 3):
		}
		until, err := r.renew(ctx)
		r.mu.Lock()
		switch {
		case err == nil:
			r.until = until
		case r.lost(err):
			r.err = errLost
		}
		over := r.err != nil
		r.mu.Unlock()
		if over {
			return
		}
	}
}

// Fence implements locking.Holding: there is none.
func (*renewed) Fence() int64 { return 0 }

// Err implements locking.Holding.
func (r *renewed) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && !r.until.IsZero() && time.Now().After(r.until) {
		return errLost
	}
	return r.err
}

// Release implements locking.Holding.
func (r *renewed) Release(ctx context.Context) error {
	r.stop()
	r.renewer.Wait()
	if err := r.Err(); err != nil {
		return err
	}
	return r.release(ctx)
}
