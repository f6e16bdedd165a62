package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// leftovers are requests that no process waits for any more and that could not be withdrawn, since
// Redis did not answer. A lock that it grants to one is given back as soon as it answers again:
// else the lock is without a holder until its TTL has passed.
type leftovers struct {
	mu      sync.Mutex
	all     []leftover         // the next one to ask for first
	end     context.CancelFunc // of the goroutine that asks; nil = there are none
	closed  bool
	running sync.WaitGroup
}

type leftover struct {
	name   string
	keys   []string
	token  string    // which no request has again
	next   time.Time // when to ask, at the earliest
	until  time.Time // when to ask no more
	absent bool      // Redis has answered that it has no such request
}

const (
	maxLeftovers  = 10_000
	leftoverPause = 100 * time.Millisecond // while Redis does not answer
	// overtaking is how much later than its withdrawal a request may reach Redis, at most: they are
	// on two connections, and wait both where a server or a network stands still.
	overtaking = 2 * time.Second
)

// withdrawLater asks for a request's withdrawal once Redis answers. absent means that Redis has
// just answered that it has no such request, which may be on its way. It reports whether there was
// room for it.
func (l *Locks) withdrawLater(name string, keys []string, token string, absent bool) bool {
	s, now := &l.left, time.Now()
	one := leftover{name: name, keys: keys, token: token, next: now, until: now.Add(placeKept), absent: absent}
	if absent {
		one.next = now.Add(overtaking)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.all) >= maxLeftovers {
		return false
	}
	s.putLocked(one)
	if s.end == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.end = cancel
		s.running.Go(func() { l.withdrawAll(ctx) })
	}
	return true
}

// withdrawAll is the goroutine. It asks for one request after the other until there are none.
func (l *Locks) withdrawAll(ctx context.Context) {
	for open := true; open; {
		one, due, some := l.left.take()
		if !some {
			return
		}
		if !due || !l.withdraw(ctx, one) {
			_, open = sleep(ctx, nil, leftoverPause)
		}
	}
}

// withdraw asks for one, and reports whether Redis has answered.
func (l *Locks) withdraw(ctx context.Context, one leftover) bool {
	free, err := l.giveLease(ctx, one.keys, one.token)
	if free {
		l.unlist(ctx, one.name)
	}
	now := time.Now()
	switch {
	case away(err) && (now.Before(one.until) || ctx.Err() != nil):
		one.next = now
		l.left.put(one)
	case isAbsent(err) && !one.absent:
		one.next, one.absent = now.Add(overtaking), true
		l.left.put(one)
	case err != nil && !isLost(err):
		l.log.WarnContext(ctx, notWithdrawn, "name", one.name, "error", err)
	}
	return !away(err)
}

const notWithdrawn = "lock: a request without an answer could not be withdrawn, and its lock or place ends by itself"

// away reports whether Redis has not answered.
func away(err error) bool { return unknown(err) || errors.Is(err, redisstore.ErrUnavailable) }

// isAbsent reports whether a token had neither the lock nor a place in the queue.
func isAbsent(err error) bool { return isLost(err) && !errors.Is(err, errPlace) }

func (s *leftovers) put(one leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putLocked(one)
}

func (s *leftovers) putLocked(one leftover) {
	at, _ := slices.BinarySearchFunc(s.all, one.next, func(other leftover, next time.Time) int { return other.next.Compare(next) })
	s.all = slices.Insert(s.all, at, one)
}

// take removes the next one that is due. Without any, the goroutine is over.
func (s *leftovers) take() (one leftover, due, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		s.end()
		s.all, s.end = nil, nil
		return leftover{}, false, false
	}
	if time.Now().Before(s.all[0].next) {
		return leftover{}, false, true
	}
	one, s.all = s.all[0], s.all[1:]
	return one, true, true
}

// close ends the goroutine, and returns how many requests remain as they are.
func (s *leftovers) close() int {
	s.mu.Lock()
	s.closed = true
	if s.end != nil {
		s.end()
	}
	s.mu.Unlock()
	s.running.Wait()
	return len(s.all)
}
