package access

import (
	"net/netip"
	"sync"
	"time"
)

// Guesses slows those down who try secrets: after guessFree wrong ones for one id from one address, there is one more each guessEvery. It is by id as well as by address so that
// somebody's wrong key does not shut out the others behind the same proxy. It remembers a bounded number. The zero value is ready, and safe for concurrent use.
type Guesses struct {
	mu  sync.Mutex
	bad map[guess]time.Time // when all wrong ones are forgotten
	now func() time.Time
}

type guess struct {
	from netip.Addr
	id   string
}

const (
	guessFree  = 20
	guessEvery = 3 * time.Second
	maxGuesses = 8192
	fewGuesses = 16 // that are looked at to make room, so that a flood of wrong keys costs little
)

// of is what a wrong key is counted under. What has no form of a key is one id.
func (g *Guesses) of(from netip.Addr, text string) guess {
	key, err := ParseKey(text)
	if err != nil {
		return guess{from: from}
	}
	return guess{from, key.ID}
}

func (g *Guesses) clock() time.Time {
	if g.now == nil {
		return time.Now()
	}
	return g.now()
}

// Wait is how long a key is not to be looked at yet; 0 = look at it.
func (g *Guesses) Wait(from netip.Addr, text string) time.Duration {
	what, now := g.of(from, text), g.clock()
	g.mu.Lock()
	defer g.mu.Unlock()
	until, there := g.bad[what]
	if !there {
		return 0
	}
	return max(until.Sub(now)-(guessFree-1)*guessEvery, 0)
}

// Failed counts a wrong key.
func (g *Guesses) Failed(from netip.Addr, text string) {
	what, now := g.of(from, text), g.clock()
	g.mu.Lock()
	defer g.mu.Unlock()
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

// forgetLocked makes room for one: of a few that it looks at it forgets those that are over, else the one that would be over first.
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
