package metrics

import (
	"hash/maphash"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// spans are the things that go on now. The zero value has none.
type spans struct {
	mu   sync.Mutex
	next uint64
	on   map[uint64]time.Time // since when
}

func (s *spans) begin(now time.Time) (place uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on == nil {
		s.on = map[uint64]time.Time{}
	}
	s.next++
	s.on[s.next] = now
	return s.next
}

// since states that one goes on since an earlier time.
func (s *spans) since(place uint64, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, on := s.on[place]; on && began.Before(known) {
		s.on[place] = began
	}
}

func (s *spans) end(place uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.on, place)
}

// now tells how many there are, and since when the first of them goes on.
func (s *spans) now() (n int, first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, began := range s.on {
		if first.IsZero() || began.Before(first) {
			first = began
		}
	}
	return len(s.on), first
}

// mostHolds is how many leases are remembered. How long others were held is not known.
const mostHolds = 100_000

// holds are leases of locks that this process has granted. It keeps no token, but a hash that only
// this process can make. took has to be set.
type holds struct {
	took prometheus.Observer

	mu   sync.Mutex
	by   map[uint64]hold
	full time.Time // when there was no room, and what had ended was let go
}

type hold struct{ since, until time.Time }

var seed = maphash.MakeSeed()

func (h *holds) begin(token string, now time.Time, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[uint64]hold{}
	}
	if len(h.by) >= mostHolds && now.Sub(h.full) > time.Second {
		h.full = now
		h.letGoLocked(now)
	}
	if len(h.by) < mostHolds {
		h.by[maphash.String(seed, token)] = hold{now, now.Add(ttl)}
	}
}

func (h *holds) extend(token string, now time.Time, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held, known := h.by[maphash.String(seed, token)]; known {
		held.until = now.Add(ttl)
		h.by[maphash.String(seed, token)] = held
	}
}

// end notes that a lease was given back.
func (h *holds) end(token string, now time.Time) {
	h.mu.Lock()
	held, known := h.by[maphash.String(seed, token)]
	delete(h.by, maphash.String(seed, token))
	h.mu.Unlock()
	if known {
		h.took.Observe(now.Sub(held.since).Seconds())
	}
}

// drop forgets a lease that ended in another way.
func (h *holds) drop(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, maphash.String(seed, token))
}

// count is how many go on, as far as is known.
func (h *holds) count(now time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letGoLocked(now)
	return len(h.by)
}

// letGoLocked forgets the leases whose time is over.
func (h *holds) letGoLocked(now time.Time) {
	maps.DeleteFunc(h.by, func(_ uint64, held hold) bool { return !held.until.After(now) })
}
