//go:build check

package lock

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// section is what a lock guards. It notices a second holder, and a fence that does not rise.
type section struct {
	t *testing.T

	mu     sync.Mutex
	inside *Lock
	fence  int64
	times  atomic.Int64
}

func (s *section) enter(lock *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside != nil && s.inside.Validity() > 0 && lock.Validity() > 0 {
		s.t.Errorf("%d and %d hold at once", s.inside.Fence(), lock.Fence())
	}
	if lock.Fence() <= s.fence {
		s.t.Errorf("fence %d after %d", lock.Fence(), s.fence)
	}
	s.inside, s.fence = lock, lock.Fence()
	s.times.Add(1)
}

func (s *section) leave(lock *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside == lock {
		s.inside = nil
	}
}

// pass goes through the section once. What a failover makes of a call is an error, never a lock
// that is another's.
func (s *section) pass(locks *Locks) {
	lock, err := locks.Acquire(s.t.Context(), "guarded", Request{TTL: time.Second})
	if err == nil {
		s.enter(lock)
		s.leave(lock)
		err = lock.Release(s.t.Context())
	}
	if err != nil && !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, redisstore.ErrUnknownOutcome) && !errors.Is(err, ErrLost) && s.t.Context().Err() == nil {
		s.t.Errorf("a failover's error: %v", err)
	}
}

// Masters die one after the other while eight contend. At no time do two hold, and fences rise all
// the while.
func TestFailoversUnderContention(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	mine, others := acknowledged(t, set.URL())
	guarded := &section{t: t}
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for !over.Load() {
				guarded.pass([]*Locks{mine, others}[i%2])
			}
		})
	}
	served := func() {
		before := guarded.times.Load()
		expect.Eventually(t, "the lock goes round", func() bool { return guarded.times.Load() > before+50 })
	}
	served()
	for range 2 {
		old := set.Master()
		old.Kill()
		set.WaitForMaster(old)
		served()
		old.Restart()
		served()
	}
	over.Store(true)
	all.Wait()
}
