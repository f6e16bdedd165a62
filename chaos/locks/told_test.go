package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// longer is the lease of a holder whose link is cut.
const longer = 2 * time.Second

// How many links are cut at a time: under a holder in this process, and under a command, which is three processes.
const (
	holdersAtOnce  = 25
	commandsAtOnce = 6
)

// tolds is what many trials tell.
type tolds struct {
	sync.Mutex

	trials, twice int
	both          time.Duration // in which two believed to hold, in all
	nearest       time.Duration // between the moment a holder was told and that of the next one's grant, at least
}

func (s *tolds) String() string {
	return fmt.Sprintf("%d trials: in %d of them two believed to hold, for %v in all; told %v before the next grant at least", s.trials, s.twice, s.both, s.nearest)
}

// add takes a trial in: when one was seen to know that it is over, when he was last seen to believe that he holds, and when the next one got it.
func (s *tolds) add(told, believed, got int64) {
	s.Lock()
	defer s.Unlock()
	lead := time.Duration(got - told)
	if s.trials == 0 || lead < s.nearest {
		s.nearest = lead
	}
	s.trials++
	if both := time.Duration(believed - got); both > 0 {
		s.twice++
		s.both += both
	}
}

// never fails the test if two believed at any time.
func (s *tolds) never(t *testing.T) {
	t.Helper()
	t.Log(s)
	if s.twice > 0 {
		t.Error(s)
	}
}

// sometimes fails the test if it was not found that two believed.
func (s *tolds) sometimes(t *testing.T) {
	t.Helper()
	t.Log(s)
	if s.twice == 0 {
		t.Errorf("%v: nothing was found", s)
	}
}

// A holder's link is cut, whenever and however: he is told before the next one holds.
func TestHolderIsToldBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openFenced(t.Context(), redisstore.Config{URL: server.URL()}, window)
	if err != nil {
		t.Fatal(err)
	}
	cutMany(t, *trials, holdersAtOnce, near, func(i int, found *tolds) error {
		return cutHolder(t, server, i, near, func(url string) (locker, error) { return openFenced(t.Context(), redisstore.Config{URL: url}, window) }, found)
	}).never(t)
}

// The same with SETNX, a TTL and renewals, whose answers are the only thing that tells: two believe.
func TestNaiveHolderIsFoundToBeToldTooLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openNaive(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	cutMany(t, 3, holdersAtOnce, near, func(i int, found *tolds) error {
		return cutHolder(t, server, i, near, func(url string) (locker, error) { return openNaive(url) }, found)
	}).sometimes(t)
}

// cutMany makes that many trials, so many at a time, and closes near, which is what the next ones lock with.
func cutMany(t *testing.T, n, atOnce int, near locker, cut func(i int, found *tolds) error) *tolds {
	t.Helper()
	found := &tolds{}
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			err := cut(i, found)
			for again := 0; again < 3 && errors.Is(err, errStood); again++ {
				t.Logf("trial %d: %v", i, err)
				err = cut(i, found)
			}
			if err != nil {
				t.Errorf("trial %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if err := near.close(); err != nil {
		t.Error(err)
	}
	if found.trials != n {
		t.Errorf("%d of %d trials", found.trials, n)
	}
	return found
}

// errStood says that a trial tells nothing.
var errStood = errors.New("the machine stood still for so long that nobody could have acted in time")

// await has the next one stand in line. The channel has the moment at which it got the lock, if it did.
func await(ctx context.Context, near locker, w wish) <-chan next {
	line := make(chan next, 1)
	go func() {
		held, err := near.acquire(ctx, w)
		line <- next{held, now(), err}
	}()
	return line
}

// next is the one who gets a lock next.
type next struct {
	holding

	got int64
	err error
}

// cutHolder cuts one link: what is sent is swallowed, or its connection ends before or after it was carried out, and new ones are not answered.
func cutHolder(t *testing.T, server *redistest.Server, i int, near locker, open func(url string) (locker, error), found *tolds) error {
	var gone atomic.Bool
	fate := []redistest.Fate{redistest.Swallow, redistest.CutBefore, redistest.CutAfter}[i%3]
	proxy := redistest.StartProxy(t, server.Addr(), func([]byte) (redistest.Fate, func()) {
		if gone.Load() {
			return fate, nil
		}
		return redistest.Pass, nil
	})
	remote, err := open(proxy.URL())
	if err != nil {
		return err
	}
	w := wish{name: fmt.Sprintf("cut-%d", i), ttl: longer, wait: time.Minute}
	held, err := remote.acquire(t.Context(), w)
	if err != nil {
		return err
	}
	told, believed := make(chan int64, 1), int64(0)
	go func() {
		for at := now(); held.Err() == nil; at = now() {
			believed = at
			time.Sleep(time.Millisecond)
		}
		told <- now()
	}()
	line := await(t.Context(), near, w)
	time.Sleep(rand.N(longer)) // some renewals come through
	gone.Store(true)
	proxy.SetDeaf(true)
	heir := <-line
	if heir.err != nil {
		return fmt.Errorf("the next one: %w", heir.err)
	}
	at := <-told
	found.add(at, believed, heir.got)
	if held.Fence() >= heir.Fence() && heir.Fence() > 0 {
		t.Errorf("fence %d after %d", heir.Fence(), held.Fence())
	}
	gone.Store(false)
	proxy.SetDeaf(false)
	ctx := context.WithoutCancel(t.Context())
	_ = held.Release(ctx) // it was lost
	if err := heir.Release(ctx); err != nil {
		return fmt.Errorf("the next one's release: %w", err)
	}
	return remote.close()
}
