package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/scripts"
)

// The list of names is for people. A lock that is held for a moment is not worth a round trip, so only one that is held for longer gets on the list, where it
// stays for its lease and is taken off when it is released: locks leave no name behind, however many there were.
const (
	worthListing = 250 * time.Millisecond
	maxNames     = 1000
)

func (l *Locks) names() string { return l.store.Key("locks", "names") }

// note puts a name on the list, or takes it off. A failure is made up for by the next renewal, or by the lease's end.
func (l *Locks) note(ctx context.Context, name string, life time.Duration) {
	_, _ = l.run(ctx, scripts.LockNote, []string{l.names()}, name, life.Milliseconds())
}

// Names lists up to n names (1 to 1000) of locks that are held, in the order of their bytes: those behind a name, "" for the first page, that begin with a prefix.
// A lock is on the list from a quarter of a second after it was granted. Clients of redislock itself list nothing.
func (l *Locks) Names(ctx context.Context, prefix, behind string, n int) ([]string, error) {
	if n < 1 || n > maxNames {
		return nil, fmt.Errorf("%w: n %d: 1 to %d", ErrRequest, n, maxNames)
	}
	reply, err := l.run(ctx, scripts.LockNames, []string{l.names()})
	if err != nil {
		return nil, err
	}
	if reply.Word() != "ok" {
		return nil, reply.Unexpected()
	}
	names := slices.DeleteFunc(slices.Clone(reply.Values()), func(name string) bool { return name <= behind || !strings.HasPrefix(name, prefix) })
	slices.Sort(names)
	return names[:min(n, len(names))], nil
}

// young are the locks of this process that have been held for less than worthListing, the oldest first. One timer is for all of them.
type young struct {
	mu    sync.Mutex
	locks []*Lock
	timer *time.Timer // nil = none is under way
}

func (y *young) add(lock *Lock) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.locks = append(y.locks, lock)
	if y.timer == nil {
		y.timer = time.AfterFunc(worthListing, y.grow)
	}
}

// grow lists those that have been held for long enough, and forgets those that are held no more.
func (y *young) grow() {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.locks = slices.DeleteFunc(y.locks, func(lock *Lock) bool {
		old := time.Since(lock.listing.since) >= worthListing
		if old {
			go lock.listing.put(lock.keeper.Context(), lock.first.TTL)
		}
		return old || lock.listing.over()
	})
	if len(y.locks) == 0 {
		y.timer = nil
		return
	}
	y.timer.Reset(worthListing - time.Since(y.locks[0].listing.since))
}

// listing keeps one lock's name on the list.
type listing struct {
	lock  *Lock
	since time.Time

	mu     sync.Mutex
	listed bool
	ended  bool
}

func (s *listing) start(lock *Lock) {
	s.lock, s.since = lock, time.Now()
	lock.locks.young.add(lock)
}

func (s *listing) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// extend keeps the name for another TTL, if it is on the list.
func (s *listing) extend(ctx context.Context, ttl time.Duration) {
	s.mu.Lock()
	listed := s.listed
	s.mu.Unlock()
	if listed {
		s.put(ctx, ttl)
	}
}

func (s *listing) put(ctx context.Context, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.listed = true
	s.lock.locks.note(ctx, s.lock.first.Name, ttl)
}

// stop ends it, waits for a call that is under way, and tells whether the name may be on the list.
func (s *listing) stop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.listed
}
