package snowflake

import (
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// answer is the worker's last answer.
type answer struct {
	lease Lease
	err   error
	since time.Time // the start of the millisecond in which asked was counted
	asked int
}

// asksPerInterval bounds how often the worker is asked.
const asksPerInterval = 4

// ask asks the worker, unless it was asked just now, and takes over its answer.
func (g *Generator) ask(now time.Time) error {
	if a := &g.lease; now.Sub(a.since) >= interval || a.asked == 0 {
		a.since, a.asked = now, 0
	} else if a.asked >= asksPerInterval {
		return a.err
	}
	g.lease.asked++
	lease, err := g.worker.Lease()
	if err == nil {
		err = g.accept(lease)
	} else {
		err = fmt.Errorf("%w: %w", ErrNoLease, err)
	}
	g.lease.err = err
	if err != nil || lease == g.lease.lease {
		return err
	}
	g.lease.lease = lease
	g.window = g.windowOf(lease)
	g.clock.unit, g.clock.rest = g.layout.units(g.epoch, lease.Time)
	g.clock.at = lease.At
	if to := (grant{lease.Fence, lease.Datacenter, lease.Worker, g.window.first}); !g.opened || g.current.Load().grant != to {
		g.opened = true
		g.open(to)
	}
	// The limit of a window that was cut short must not outlive it.
	if p := g.current.Load(); p.limit.Load() > g.position(g.window.end) {
		g.cool()
	}
	return nil
}

// accept refuses a lease that does not fit its own layout, and one of another layout or epoch than
// the generator's, which are those of the first that it accepted.
func (g *Generator) accept(lease Lease) error {
	switch {
	case g.layout == Layout{}:
		if err := lease.Layout.check(); err != nil {
			return fmt.Errorf("%w: %w", ErrMisfit, err)
		}
	case lease.Layout != g.layout || !lease.Epoch.Equal(g.epoch):
		return fmt.Errorf("%w: %v since %v instead of %v since %v", ErrReshaped, lease.Layout, lease.Epoch.UTC(), g.layout, g.epoch.UTC())
	}
	if err := lease.Layout.fits(lease.Datacenter, lease.Worker); err != nil {
		return err
	}
	g.layout, g.epoch = lease.Layout, lease.Epoch
	return nil
}

// interval is how often a busy generator reads the clock.
const interval = time.Millisecond

// heat is how many calls there are. While they are few, each reads the clock. While they are many,
// a goroutine does it for them once a tick; it ends when they are few again.
type heat struct {
	hot     bool
	ticking bool      // there is a goroutine
	since   time.Time // the start of the tick in which looked was counted
	looked  int64
	before  int64 // the next position after the last tick
	idle    int   // ticks
}

const (
	hotAt    = 8  // ids drawn with a reading of the clock, in one tick
	idleTick = 8  // ids in a tick without which it is idle
	idleMax  = 16 // idle ticks in a row that end the goroutine
)

// warm counts ids that were drawn with a reading of the clock.
func (g *Generator) warm(now time.Time, count int64) {
	h := &g.heat
	if now.Sub(h.since) >= interval {
		h.since, h.looked = now, 0
	}
	h.looked += count
	if h.hot || h.looked < hotAt {
		return
	}
	h.hot, h.idle = true, 0
	if !h.ticking {
		h.ticking = true
		g.ticker.Go(g.run)
	}
}

// run reads the clock for all while calls are many.
func (g *Generator) run() {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-g.stop:
		case <-ticker.C:
		}
		step.At("snowflake: a tick")
		if !g.tick() {
			return
		}
	}
}

// tick reads the clock once. It reports whether another tick is to follow.
func (g *Generator) tick() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	unit, wait, err := g.check(now)
	if err != nil || wait > 0 || !g.heat.hot || g.isIdle() {
		g.cool()
		g.heat.ticking = false
		return false
	}
	p := g.current.Load()
	g.skip(p, g.begin(unit, g.config.Spread))
	g.allow(p, now)
	g.heat.before = p.next.Load()
	return true
}

// isIdle reports whether few ids were drawn for some ticks in a row.
func (g *Generator) isIdle() bool {
	h := &g.heat
	h.idle++
	if g.current.Load().next.Load()-h.before >= idleTick {
		h.idle = 0
	}
	return h.idle >= idleMax
}
