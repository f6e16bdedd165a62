package access

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// Lockout slows down clients that guess secrets, by address. A right secret is no guess: it is
// compared first, so that no stranger can lock its owner out. A wrong one is counted by its id and
// its address, and by its address alone, since ids can be invented: after guessFree of an id, or
// guessFreeOfAll, one more is free each guessEvery, and others have to wait. It remembers a bounded
// number. The zero value is ready, and safe for concurrent use.
type Lockout struct {
	mu   sync.Mutex
	bad  map[source]time.Time // when all wrong ones are forgotten
	held map[netip.Addr]int   // answers that are held back, by address
	all  int                  // of them
}

// source is what wrong keys are counted under.
type source struct {
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

// Failed counts a wrong key. It returns how long it takes until the next one is free; 0 = this one
// was. One that was not free is not counted.
func (l *Lockout) Failed(from netip.Addr, text string) (wait time.Duration) {
	one, all := source{from: from}, source{from: from, any: true}
	if key, err := ParseKey(text); err == nil {
		one.id = key.ID
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait = max(l.waitLocked(one, guessFree, now), l.waitLocked(all, guessFreeOfAll, now)); wait == 0 {
		l.countLocked(one, now)
		l.countLocked(all, now)
	}
	return wait
}

// waitLocked is how long it takes until one more is free.
func (l *Lockout) waitLocked(what source, free int, now time.Time) time.Duration {
	until, there := l.bad[what]
	if !there {
		return 0
	}
	return max(until.Sub(now)-time.Duration(free-1)*guessEvery, 0)
}

func (l *Lockout) countLocked(what source, now time.Time) {
	if l.bad == nil {
		l.bad = map[source]time.Time{}
	}
	until, there := l.bad[what]
	if !there && len(l.bad) >= maxGuesses {
		l.forgetLocked(now)
	}
	if until.Before(now) {
		until = now
	}
	l.bad[what] = until.Add(guessEvery)
}

// forgetLocked makes room for one: of a few it forgets those that are over, else the first to end.
func (l *Lockout) forgetLocked(now time.Time) {
	var first source
	var soonest time.Time
	looked := 0
	for what, until := range l.bad {
		if soonest.IsZero() || until.Before(soonest) {
			first, soonest = what, until
		}
		if until.Before(now) {
			delete(l.bad, what)
		}
		if looked++; looked == fewGuesses {
			break
		}
	}
	delete(l.bad, first)
}

// Hold delays the answer to a wrong key for a second, or until the context ends, so that a client
// that asks again at once asks once a second. It returns false at once if it holds as many as it
// may: held answers must not take the places of other requests.
func (l *Lockout) Hold(ctx context.Context, from netip.Addr) (held bool) {
	if !l.hold(from) {
		return false
	}
	defer l.release(from)
	select {
	case <-ctx.Done():
	case <-time.After(holdFor):
	}
	return true
}

func (l *Lockout) hold(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == maxHeld || l.held[from] == maxHeldAnAddress {
		return false
	}
	if l.held == nil {
		l.held = map[netip.Addr]int{}
	}
	l.all++
	l.held[from]++
	return true
}

func (l *Lockout) release(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.held[from]--; l.held[from] == 0 {
		delete(l.held, from)
	}
}
