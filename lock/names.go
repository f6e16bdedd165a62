package lock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// The list of names is for people. A lock that is held only briefly is not worth a round trip, so
// only one that is held for longer gets on the list, where it stays for its lease and is taken off
// when it is released: no name remains, however many locks there were.
const (
	worthListing = 250 * time.Millisecond
	maxNames     = 1000 // in a page, and in one look at the list
)

func (l *Locks) names() string { return onstore.Key(l.store, "locks", "names") }

// note puts a name on the list, or takes it off. After a failure the next renewal or the end does.
func (l *Locks) note(ctx context.Context, name string, life time.Duration) {
	_, _ = l.run(ctx, scripts.LockNote, []string{l.names()}, name, life.Milliseconds())
}

// unlist takes the name of a lock that was just given back off the list. The next holder may have
// noted it before: then it is put back.
func (l *Locks) unlist(ctx context.Context, name string) {
	l.note(ctx, name, 0)
	found, err := l.Get(ctx, name)
	if err != nil {
		return
	}
	for _, holder := range found.Holders {
		if holder.Until.After(found.Now) && holder.Fence > 0 {
			l.note(ctx, name, holder.Until.Sub(found.Now))
		}
	}
}

// List lists up to n names (1 to 1000) of held locks, in byte order: those after a name, "" for
// the first page, that begin with a prefix. next is the name after which the next page begins, ""
// where there is none. A lock is on the list from a quarter of a second after
// it was granted. One that was handed over, and given back within a quarter of a second, may stay
// until that lease would have ended: Get reports whether it is held. Clients of redislock itself
// list nothing. The list is in the order of ends: a call reads all of it, a thousand names at a
// time.
func (l *Locks) List(ctx context.Context, prefix, after string, n int) (names []string, next string, err error) {
	if n < 1 || n > maxNames {
		return nil, "", fmt.Errorf("%w: n %d: 1 to %d", ErrInvalid, n, maxNames)
	}
	for end, last := "0", ""; ; {
		reply, err := l.run(ctx, scripts.LockNames, []string{l.names()}, end, last, maxNames)
		if err != nil {
			return nil, "", err
		}
		page := reply.Values()
		if reply.Word() != "ok" || len(page)%2 != 0 {
			return nil, "", reply.Unexpected()
		}
		for i := 0; i < len(page); i += 2 {
			if last, end = page[i], page[i+1]; last > after && strings.HasPrefix(last, prefix) {
				names = append(names, last)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names) // one that was noted again between two pages
		names = names[:min(n+1, len(names))]
		if len(page) < 2*maxNames {
			if len(names) > n {
				return names[:n], names[n-1], nil
			}
			return names, "", nil
		}
	}
}

// listing keeps the name of a held lock on the list.
type listing struct {
	locks *Locks
	name  string
	ttl   time.Duration

	first *time.Timer // puts it there; nil = no holder has begun

	mu     sync.Mutex
	listed bool
	ended  bool
	ctx    context.Context // of the calls that put it there; nil before the first
	cancel context.CancelFunc
	calls  sync.WaitGroup // those under way
}

func (s *listing) start(l *Locks, grant Grant) {
	s.locks, s.name, s.ttl = l, grant.Name, grant.TTL
	s.first = time.AfterFunc(worthListing, s.put)
}

// extend keeps the name for another TTL, if it is on the list.
func (s *listing) extend() {
	s.mu.Lock()
	listed := s.listed
	s.mu.Unlock()
	if listed {
		s.put()
	}
}

func (s *listing) put() {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancel(context.Background())
	}
	s.listed = true
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	s.locks.note(s.ctx, s.name, s.ttl)
}

// stop ends it, and a call that is under way, and reports whether the name may be on the list.
func (s *listing) stop() bool {
	if s.first != nil {
		s.first.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if !s.listed {
		return false
	}
	s.cancel()
	s.calls.Wait()
	return true
}
