package lock

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// acknowledged are two processes whose grants count once a replica has them.
func acknowledged(t *testing.T, url string) (mine, others *Locks) {
	t.Helper()
	store := storetest.Open(t, redisstore.Config{URL: url, Ack: 1})
	return open(t, store, Config{Window: 300 * time.Millisecond}), open(t, store, Config{Window: 300 * time.Millisecond})
}

// The master dies while a lock is held and waited for. The holder goes on, the queue is served in its order, and fences rise.
func TestFailoverLosesNeitherTheHolderNorTheQueue(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	mine, others := acknowledged(t, set.URL())
	for _, mode := range []Mode{Exclusive, Shared} {
		const ttl = 15 * time.Second
		held := must(t, mine, "over", Request{TTL: ttl, Mode: mode})
		second, third := inLine(t, others, "over", Request{}, 1), inLine(t, mine, "over", Request{}, 2)
		old := set.Master()
		old.Kill()
		set.WaitForMaster(old)
		since := time.Now()
		until(t, "the new master has renewed it", func() bool { return held.Err() != nil || held.Validity() > ttl-time.Since(since) })
		if got := info(t, mine, "over"); held.Err() != nil || len(got.Holders) != 1 || got.Holders[0].Fence != held.Fence() || got.Queue != 2 {
			t.Fatalf("%+v, %v", got, held.Err())
		}
		second.stillWaits(t)
		release(t, held)
		heir := second.granted(t)
		third.stillWaits(t)
		release(t, heir)
		last := third.granted(t)
		rising(t, held.Fence(), heir.Fence(), last.Fence())
		release(t, last)
		old.Restart()
	}
}

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

// pass goes through the section once. What a failover makes of a call is an error, never a lock that is another's.
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

// Masters die one after the other while eight contend. At no time do two hold, and fences rise all the while.
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
		until(t, "the lock goes round", func() bool { return guarded.times.Load() > before+50 })
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

// A master of a cluster dies, of which only one replica is left, while a lock of its slot is held and waited for.
func TestFailoverOfAClustersMaster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	store := storetest.Open(t, redisstore.Config{URL: cluster.URL()})
	mine, others := open(t, store, Config{}), open(t, store, Config{})
	const ttl = 15 * time.Second
	held := must(t, mine, "over", Request{TTL: ttl})
	next := inLine(t, others, "over", Request{}, 1)
	old := cluster.MasterOf(mine.Key("over"))
	pipe := old.Client().Pipeline()
	pipe.Set(t.Context(), mine.Key("over")+":copied", 1, 0)
	copied := pipe.Do(t.Context(), "wait", 1, 1000)
	if _, err := pipe.Exec(t.Context()); err != nil || copied.Val() != int64(1) {
		t.Fatal(err, copied)
	}
	old.Kill()
	since := time.Now()
	until(t, "the new master has renewed it", func() bool { return held.Err() != nil || held.Validity() > ttl-time.Since(since) })
	if held.Err() != nil {
		t.Fatal(held.Err())
	}
	next.stillWaits(t)
	release(t, held)
	heir := next.granted(t)
	rising(t, held.Fence(), heir.Fence())
	release(t, heir)
}
