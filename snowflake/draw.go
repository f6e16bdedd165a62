package snowflake

import (
	"context"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// redeem makes some of a ticket's positions good, at least the first. It may draw others instead.
func (g *Generator) redeem(ctx context.Context, t *ticket) (count int64, err error) {
	if g.isFresh() { // the limit was just set by the clock
		step.At("snowflake: the clock is fresh")
		if count = min(t.count, t.limit.Load()-t.first); count > 0 {
			return count, nil
		}
	}
	for {
		count, wait, err := g.try(t)
		if err != nil || count > 0 {
			return count, err
		}
		if err := g.sleep(ctx, wait); err != nil {
			g.giveUp(t)
			return 0, err
		}
	}
}

func (g *Generator) isFresh() bool { return int64(time.Since(g.born)) < g.fresh.Load() }

// try checks the lease and the clock. It returns how many of the ticket's positions may be stamped,
// or else how long to wait before trying again.
func (g *Generator) try(t *ticket) (count int64, wait time.Duration, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	unit, wait, err := g.check(now)
	if err != nil || wait > 0 {
		return 0, wait, err
	}
	g.warm(now, t.count)
	p := g.current.Load()
	old := t.positions != p || t.first < g.position(unit)
	if old { // before the limit rises, so that no other call stamps the time since the last draw
		g.skip(p, g.begin(unit, t.spread))
	}
	limit := g.allow(p, now)
	if old {
		t.positions, t.first = p, p.next.Add(t.count)-t.count
	}
	count = min(t.count, limit-t.first)
	if count <= 0 {
		return 0, g.turn(t.first, now), nil
	}
	g.used = max(g.used, t.first+count-1)
	return count, 0, nil
}

// check asks the worker and the clock. It returns the clock's unit, if that can be stamped;
// otherwise the error, or how long to wait.
func (g *Generator) check(now time.Time) (unit int64, wait time.Duration, err error) {
	if g.stopped {
		return 0, 0, ErrStopped
	}
	if err := g.ask(now); err != nil {
		g.cool()
		return 0, 0, err
	}
	unit, _ = g.clock.read(now, g.layout.Unit)
	switch {
	case unit < 0:
		err = fmt.Errorf("%w: it is %v", ErrBeforeEpoch, g.epoch)
	case unit>>g.layout.Timestamp > 0:
		err = fmt.Errorf("%w: %v since %v", ErrLayoutUsedUp, g.layout, g.epoch)
	case unit >= g.window.end:
		err = &WindowEndedError{g.lease.lease.NotAfter}
	case unit < g.window.first:
		wait = g.until(g.window.first, now, 0)
	default:
		return unit, 0, nil
	}
	g.cool()
	return 0, wait, err
}

// allow returns up to which position the clock, the lead and the window allow ids now; while calls
// are many, that is the limit for all of them.
func (g *Generator) allow(p *positions, now time.Time) (limit int64) {
	last, _ := g.clock.read(now.Add(MaxLead), g.layout.Unit)
	g.high = max(g.high, g.position(last+1))
	limit = min(g.high, g.position(g.window.end))
	if g.heat.hot {
		p.limit.Store(limit)
		step.At("snowflake: raised the limit")
		g.fresh.Store(int64(now.Sub(g.born) + 2*interval))
	}
	return limit
}

// turn is the time until a position can be allowed. Beyond the window a renewal may allow it.
func (g *Generator) turn(n int64, now time.Time) time.Duration {
	if n >= g.position(g.window.end) {
		return min(g.until(g.window.end, now, 0), renewalWait)
	}
	return g.until(n>>g.layout.Sequence, now, MaxLead)
}

// until is the time until the clock reaches a unit, less a lead, or until the lease is looked at.
func (g *Generator) until(unit int64, now time.Time, lead time.Duration) time.Duration {
	at, rest := g.clock.read(now, g.layout.Unit)
	missing := min(unit-at, int64(2*leaseWait/g.layout.Unit)+1)
	return min(max(time.Duration(missing)*g.layout.Unit-rest-lead, time.Nanosecond), leaseWait)
}

// leaseWait is the longest wait without a check of the lease.
const leaseWait = time.Second

// renewalWait is the longest wait for a renewal without a check of the lease.
const renewalWait = 10 * time.Millisecond

func (g *Generator) sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		step.At("snowflake: gave up waiting")
		return fmt.Errorf("snowflake: waiting: %w", context.Cause(ctx))
	case <-g.stop: // the next try reports it
	case <-timer.C:
	}
	step.At("snowflake: waited")
	return nil
}

// giveUp records a ticket that was abandoned. If there are many, the positions beyond the limit are
// wasted, and new ones begin.
func (g *Generator) giveUp(t *ticket) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.positions != g.current.Load() {
		return
	}
	if g.given += int(t.count); g.given > maxGiven {
		g.open(t.grant)
	}
}

const maxGiven = 1024

// note records how far ids may have been stamped under a limit, and returns the next position.
func (g *Generator) note(p *positions, limit int64) int64 {
	n := p.next.Load()
	if n != g.clean {
		g.drawn = n
	}
	// tickets from before a skip become good when the limit rises
	g.used = max(g.used, min(g.drawn, limit)-1)
	return n
}

// skip goes on to a position. Concurrent draws make it go further.
func (g *Generator) skip(p *positions, to int64) {
	n := g.note(p, p.limit.Load())
	if n >= to {
		return
	}
	step.At("snowflake: is about to skip")
	if g.clean = to; p.next.Add(to-n) != to {
		g.clean = -1 // another call drew before it
	}
}

// cool takes the limit away, so that each call checks the lease and the clock. When it has
// returned, used holds all that was and will be stamped without.
func (g *Generator) cool() {
	p := g.current.Load()
	limit := p.limit.Swap(0)
	step.At("snowflake: took the limit away")
	g.note(p, limit)
	g.heat.hot = false
	g.fresh.Store(0)
}

// open begins new positions, in the grant's window and after all that may have been stamped. Other
// calls may draw from them at once, and redeem what they drew as soon as the limit rises, before
// any skip to the clock's unit: so already the first one has to lie in the window.
func (g *Generator) open(to grant) {
	hot := g.heat.hot
	g.cool()
	g.heat.hot = hot
	// another unit, so that ids rise though the worker id may be smaller
	if g.current.Load().grant != to && g.used >= 0 {
		g.floor = g.position(g.used>>g.layout.Sequence + 1)
		g.used = -1
	}
	p := &positions{
		identity: g.layout.identity(to.datacenter, to.worker),
		sequence: uint8(g.layout.Sequence), above: uint8(g.layout.Datacenter + g.layout.Worker), //nolint:gosec // 63 at most
		grant: to,
	}
	start := max(g.floor, g.used+1, g.position(to.first))
	p.next.Store(start)
	g.given, g.drawn, g.clean, g.heat.before = 0, 0, start, 0
	g.current.Store(p)
	step.At("snowflake: opened positions")
}
