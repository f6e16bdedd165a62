package snowflake

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// positions are what ids of one grant are drawn from: a unit of time and a sequence in one word:
//
//	unit | sequence
//
// so that drawing one is one addition, and a full sequence carries into the next unit by itself.
// Positions only grow. What was drawn is stamped if it is below the limit, which the clock, the
// lead and the window's end set; drawn beyond it, it is a ticket for later.
//
// There are other positions, with another worker id, after each new grant, and when too many
// tickets beyond the limit were given up. They begin in the grant's window, and after all that may
// have been stamped before. The limit of those before is 0 by then, for good.
//
// So no id lies outside of its grant's window, in whatever order the steps of several calls come:
// below it there is no position to draw, and the limit is never above the window's end.
type positions struct {
	_     [64]byte // next shares its cache line with no other field
	next  atomic.Int64
	_     [56]byte
	limit atomic.Int64 // 0 = ask the clock each time
	// What does not change:
	identity int64 // worker id and datacenter, in their place in the id
	sequence uint8 // bits
	above    uint8 // bits between a position's unit and the id's timestamp
	grant    grant
	_        [24]byte
}

// grant identifies a grant.
type grant struct {
	fence              int64
	datacenter, worker int
	first              int64 // unit of its window
}

// id puts a position and the worker id together.
func (p *positions) id(n int64) ID {
	low := n & (1<<(p.sequence&63) - 1)
	return ID((n^low)<<(p.above&63) | p.identity | low)
}

// ticket is positions that one call has drawn: count of them.
type ticket struct {
	*positions

	first, count int64
	spread       bool // a fresh unit begins by lot
}

// write stamps the ticket's first positions.
func (t ticket) write(ids []ID) {
	p := t.positions
	n := t.first
	// within one unit ids are consecutive
	if n&(1<<(p.sequence&63)-1)+int64(len(ids)) <= 1<<(p.sequence&63) {
		first := p.id(n)
		for i := range ids {
			ids[i] = first + ID(i)
		}
		return
	}
	for i := range ids {
		ids[i] = p.id(n + int64(i))
	}
}

// position is the first position of a unit.
func (g *Generator) position(unit int64) int64 { return unit << g.layout.Sequence }

// begin is the position that a fresh unit starts at.
func (g *Generator) begin(unit int64, spread bool) int64 {
	n := g.position(unit)
	if half := int64(1) << g.layout.Sequence / 2; spread && half > 1 {
		n += rand.Int64N(half) //nolint:gosec // it spreads ids over shards and hides nothing
	}
	return n
}

// clock is the lease's clock: where it was when, in units since the epoch.
type clock struct {
	unit int64
	rest time.Duration // of the next unit
	at   time.Time
}

// read returns the clock's unit now, and how much of the next one has passed.
func (c clock) read(now time.Time, unit time.Duration) (int64, time.Duration) {
	passed := c.rest + now.Sub(c.at)
	whole, rest := int64(passed/unit), passed%unit
	if rest < 0 {
		whole, rest = whole-1, rest+unit
	}
	return c.unit + whole, rest
}

// window is the lease's, in units: [first, end).
type window struct{ first, end int64 }

// window counts only units that lie in it wholly.
func (g *Generator) windowOf(lease Lease) window {
	layout, epoch := g.layout, g.epoch
	first, rest := layout.units(epoch, lease.NotBefore)
	if rest > 0 {
		first++
	}
	end, _ := layout.units(epoch, lease.NotAfter)
	used := int64(1) << layout.Timestamp // the first unit that no id can have
	return window{min(max(first, 0), used), min(end, used)}
}
