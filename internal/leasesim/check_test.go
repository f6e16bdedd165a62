package leasesim

import (
	"fmt"
	"math"
)

// breach is what kind of promise was broken.
type breach string

const (
	// two grants may stamp, or have stamped, the same timestamp with the same worker id.
	repeat breach = "the same id twice"
	order  breach = "fence goes back" // a later grant has no larger fence
	wrong  breach = "wrong time"      // a stamp is ahead of the truth, or far behind it
	// a holder counts on its lease although another one was granted the worker id more than S ago.
	both   breach = "two holders at once"
	warm   breach = "no rest"          // a slot is granted again before it has cooled down
	robbed breach = "lost while alive" // a renewal in time is refused
	// a grant is of a pool that looks otherwise than it is configured to.
	shaped breach = "another shape"
	// a token is claimed by two.
	claimedTwice breach = "a token twice"
	// a place of which an operator has said that it is gone is noted again.
	waited breach = "gone and waited for"
)

// grant is what one holder was confirmed.
type grant struct {
	id, client, worker int
	identity           int
	made               int64 // when, in truth
	fence              int64
	shape              int
	from, till         int64 // what it may use
	used               int64 // the end of its last stamp, or from
	looked             int64 // when it counted on its lease last
	heir               int64 // when the next confirmed grant of its worker id was made
	over               bool  // it stamps no more
}

// end is one past the last timestamp that the grant has used or may still use.
func (g *grant) end() int64 {
	if g.over {
		return g.used
	}
	return g.till
}

func (g *grant) String() string {
	return fmt.Sprintf("grant %d (client %d, worker %d, fence %d) [%d, %d)", g.id, g.client, g.worker, g.fence, g.from, g.end())
}

// checker knows all confirmed grants and all stamps.
type checker struct {
	s         *sim
	grants    [maxSlots][]*grant
	newest    *grant // of the pool
	stamps    map[int64]*grant
	tokens    map[int]*client // by whom each was claimed
	stamped   int64
	confirmed int64
	breach    breach
	violation string
	worker    int
}

func newChecker(s *sim) checker {
	return checker{s: s, stamps: map[int64]*grant{}, tokens: map[int]*client{}}
}

// failf notes the first violation, of the kind that is expected if one is.
func (c *checker) failf(b breach, worker int, format string, args ...any) {
	if c.violation == "" && (c.s.expect == "" || c.s.expect == b) {
		c.breach, c.violation, c.worker = b, fmt.Sprintf(format, args...), worker
		c.s.tellf(worker, "VIOLATION: %s: %s", b, c.violation)
	}
}

// granted is told of a grant that was confirmed.
func (c *checker) granted(g *grant) {
	c.confirmed++
	if g.shape != c.s.shape() {
		c.failf(shaped, g.worker, "%v has shape %d, want %d", g, g.shape, c.s.shape())
	}
	g.heir = math.MaxInt64 / 2
	for _, other := range c.grants[g.worker] {
		if other.made < g.made {
			other.heir = min(other.heir, g.made)
		} else {
			g.heir = min(g.heir, other.made)
		}
		if other.looked > other.heir+c.s.skew {
			c.failf(both, g.worker, "%v still counted on its lease at %d, and at %d came %v", other, other.looked, g.made, g)
		}
		c.rested(other, g)
	}
	c.grants[g.worker] = append(c.grants[g.worker], g)
	c.extended(g)
	c.ordered(g)
}

// extended is told whenever a holder may use more than before.
func (c *checker) extended(g *grant) {
	for _, other := range c.grants[g.worker] {
		if other != g && max(g.from, other.from) < min(g.end(), other.end()) {
			c.failf(repeat, g.worker, "windows intersect: %v and %v", g, other)
		}
	}
}

// ordered compares fences with those of the pool's newest confirmed grant and of the worker id's.
func (c *checker) ordered(g *grant) {
	others := c.grants[g.worker]
	if c.newest != nil {
		others = append([]*grant{c.newest}, others...)
	}
	for _, other := range others {
		if other.made < g.made && other.fence >= g.fence || other.made > g.made && other.fence <= g.fence {
			c.failf(order, g.worker, "%v made at %d, and %v made at %d", other, other.made, g, g.made)
		}
	}
	if c.newest == nil || c.newest.made < g.made {
		c.newest = g
	}
}

// rested checks the cool-down, which is promised in calm, and to all but the last holder of the
// slot.
func (c *checker) rested(last, g *grant) {
	if !c.calm() || g.identity != 0 && last.identity == g.identity {
		return
	}
	if g.made > last.made && g.made < last.looked+c.s.cooldown {
		c.failf(warm, g.worker, "cool-down %d: %v counted on its lease at %d, and at %d came %v", c.s.cooldown, last, last.looked, g.made, g)
	}
}

// calm reports whether one server with one clock serves all the time.
func (c *checker) calm() bool { return c.s.faults&(everyLoss|serverClocks) == 0 }

// refused is told of a renewal that was refused at that time of the server.
func (c *checker) refused(g *grant, now int64) {
	if c.calm() && now < g.till {
		c.failf(robbed, g.worker, "%v was refused at %d", g, now)
	}
}

// look is told whenever a holder counts on its lease, and what its clock says. A clock that stood
// still is noticed by the wall clock, unless that jumps.
func (c *checker) look(g *grant, clock int64) {
	if c.s.faulty(suspends) && c.s.faulty(clientClocks) {
		return
	}
	g.looked = c.s.now
	if c.s.now > g.heir+c.s.skew {
		c.failf(both, g.worker, "%v still counts on its lease, and at %d there was another grant", g, g.heir)
	}
	if behind := c.s.now - clock; behind > c.s.longest()+c.s.skew {
		c.failf(wrong, g.worker, "%v is %d behind", g, behind)
	}
}

// stamp is told of a timestamp in an id, and of its length.
func (c *checker) stamp(g *grant, ts, length int64) {
	c.stamped++
	key := ts*maxSlots + int64(g.worker)
	if other := c.stamps[key]; other != nil && other != g {
		c.failf(repeat, g.worker, "stamped twice: timestamp %d by %v and %v", ts, g, other)
	}
	c.stamps[key] = g
	if ahead := ts - c.s.now; ahead > c.s.skew/2+c.s.lead {
		c.failf(wrong, g.worker, "timestamp %d by %v is %d ahead", ts, g, ahead)
	}
	if c.s.has(windowInID) && (ts < g.from || ts+length > g.till) {
		c.failf(repeat, g.worker, "stamped outside: timestamp %d by %v", ts, g)
	}
	g.used = max(g.used, ts+length)
}
