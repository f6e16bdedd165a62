// Package share divides few places among many owners.
package share

import (
	"cmp"
	"sync"
)

// Places counts the places of each owner; the zero value has none. It is not for concurrent use.
type Places struct{ taken map[string]int }

// Take notes that one place more is an owner's.
func (p *Places) Take(owner string) { p.add(owner, 1) }

// Free notes that one place less is an owner's. It has to have one.
func (p *Places) Free(owner string) { p.add(owner, -1) }

func (p *Places) add(owner string, n int) {
	if p.taken == nil {
		p.taken = map[string]int{}
	}
	if p.taken[owner] += n; p.taken[owner] <= 0 {
		delete(p.taken, owner)
	}
}

// Of is how many places an owner has.
func (p *Places) Of(owner string) int { return p.taken[owner] }

// Yields returns the owner that gives up a place for another when all are taken: the one with the
// most, if it then has no fewer than the other. So a lone owner may have all places, and owners
// that all want more end with equal shares.
func (p *Places) Yields(owner string) (from string, ok bool) {
	most := p.taken[owner] + 1
	for who, n := range p.taken {
		if n > most {
			from, most, ok = who, n, true
		}
	}
	return from, ok
}

// Quota bounds what cannot be taken back from its owner: places, or bytes. It keeps room for
// others: an owner with a quarter of the places gets no more of them while half of all are taken,
// so that a lone owner may have half, and each of four a quarter. It is safe for concurrent use.
type Quota struct {
	Most int  // places
	Each int  // an owner's share of them while half are taken; 0 = a quarter, and one at least
	Lone bool // there is one owner, who may have them all

	mu     sync.Mutex
	places Places
	taken  int
}

// Take takes a place for an owner. leave gives it back, and is to be called once; ok is false if
// there is none for this owner now.
func (q *Quota) Take(owner string) (leave func(), ok bool) {
	if !q.TakeMany(owner, 1) {
		return nil, false
	}
	return func() { q.Add(owner, -1) }, true
}

// TakeMany takes n places for an owner. It takes none if there are not as many for this owner now;
// with n = 0 it reports whether the owner is within its share.
func (q *Quota) TakeMany(owner string, n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	share := cmp.Or(q.Each, max(1, q.Most/4))
	if q.taken+n > q.Most || !q.Lone && q.taken+n > q.Most/2 && q.places.Of(owner)+n > share {
		return false
	}
	q.addLocked(owner, n)
	return true
}

// Add takes n places whether or not they are there, or gives them back if n is below 0.
func (q *Quota) Add(owner string, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(owner, n)
}

func (q *Quota) addLocked(owner string, n int) {
	q.taken += n
	q.places.add(owner, n)
}
