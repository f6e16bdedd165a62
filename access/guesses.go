package access

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Guesses slows down those who try secrets, by address. A right secret is no guess: it is compared
// first, so that no stranger can lock its owner out. A wrong one is counted by its id and its
// address, and by its address alone, since ids can be invented: after guessFree of an id, or
// guessFreeOfAll, there is one more each guessEvery, and those between are told to wait. It
// remembers a bounded number. The zero value is ready, and safe for concurrent use.
type Guesses struct {
	mu   sync.Mutex
	bad  map[guess]time.Time // when all wrong ones are forgotten
	held map[netip.Addr]int  // answers that are held back, by address
	all  int                 // of them
	now  func() time.Time
}

// guess is what wrong keys are counted under.
type guess struct {
	from netip.Addr
	id   string // "" = what has no form of a key
	any  bool   // all keys of the address
}

const (
	guessFree      = 20
	guessFreeOfAll = 100
	guessEvery     = 3 * time.Second
	maxGuesses     = 8192
	// that are looked at to make room, so that a flood of wrong keys costs little.
	fewGuesses = 16

	holdFor          = time.Second
	maxHeld          = 64
	maxHeldAnAddress = 8
)

func (g *Guesses) clock() time.Time {
	if g.now == nil {
		return time.Now()
	}
	return g.now()
}

// Failed counts a wrong key. It returns how long it takes until the next one is free; 0 = this one
// was. One that was not free is not counted.
func (g *Guesses) Failed(from netip.Addr, text string) (wait time.Duration) {
	one, all := guess{from: from}, guess{from: from, any: true}
	if key, err := ParseKey(text); err == nil {
		one.id = key.ID
	}
	now := g.clock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait = max(g.waitLocked(one, guessFree, now), g.waitLocked(all, guessFreeOfAll, now)); wait == 0 {
		g.countLocked(one, now)
		g.countLocked(all, now)
	}
	return wait
}

// waitLocked is how long it takes until one more is free.
func (g *Guesses) waitLocked(what guess, free int, now time.Time) time.Duration {
	until, there := g.bad[what]
	if !there {
		return 0
	}
	return max(until.Sub(now)-time.Duration(free-1)*guessEvery, 0)
}

func (g *Guesses) countLocked(what guess, now time.Time) {
	if g.bad == nil {
		g.bad = map[guess]time.Time{}
	}
	until, there := g.bad[what]
	if !there && len(g.bad) >= maxGuesses {
		g.forgetLocked(now)
	}
	if until.Before(now) {
		until = now
	}
	g.bad[what] = until.Add(guessEvery)
}

// forgetLocked makes room for one: of a few that it looks at it forgets those that are over, else
// the one that would be over first.
func (g *Guesses) forgetLocked(now time.Time) {
	var first guess
	var soonest time.Time
	looked := 0
	for what, until := range g.bad {
		if soonest.IsZero() || until.Before(soonest) {
			first, soonest = what, until
		}
		if until.Before(now) {
			delete(g.bad, what)
		}
		if looked++; looked == fewGuesses {
			break
		}
	}
	delete(g.bad, first)
}

// Hold holds the answer to a wrong key back for a second, or until the context ends, so that a
// client that asks again as soon as it has its answer asks once a second. It returns at once, with
// false, where it holds as many as it may: held answers must not take the places of others.
func (g *Guesses) Hold(ctx context.Context, from netip.Addr) (held bool) {
	if !g.hold(from) {
		return false
	}
	defer g.release(from)
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return true
}

func (g *Guesses) hold(from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == maxHeld || g.held[from] == maxHeldAnAddress {
		return false
	}
	if g.held == nil {
		g.held = map[netip.Addr]int{}
	}
	g.all++
	g.held[from]++
	return true
}

func (g *Guesses) release(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.held[from]--; g.held[from] == 0 {
		delete(g.held, from)
	}
}
