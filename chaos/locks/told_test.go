package locks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
)

// longer is the lease of a holder whose link is cut.
const longer = 2 * time.Second

// atOnce is how many links are cut at a time.
const atOnce = 25

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

func (s *tolds) add(told, believed, got int64) {
	s.Lock()
	defer s.Unlock()
	lead := time.Duration(got - told)
	if s.trials == 0 || lead < s.nearest {
		s.nearest = lead
	}
	s.trials++
	if both := time.Duration(max(told, believed) - got); both > 0 {
		s.twice++
		s.both += both
	}
}

// A holder's link is cut, whenever and however: he is told before the next one holds.
func TestHolderIsToldBeforeTheLockIsFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openFenced(t.Context(), server.URL(), 0)
	if err != nil {
		t.Fatal(err)
	}
	found := cutMany(t, server, *trials, near, func(url string) (locker, error) { return openFenced(t.Context(), url, 0) })
	t.Log(found)
	if found.twice > 0 {
		t.Error(found)
	}
}

// The same with SETNX, a TTL and renewals, whose answers are the only thing that tells: two believe.
func TestNaiveHolderIsFoundToBeToldTooLate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	near, err := openNaive(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	found := cutMany(t, server, 3, near, func(url string) (locker, error) { return openNaive(url) })
	t.Log(found)
	if found.twice == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}

// cutMany makes that many trials, and closes near.
func cutMany(t *testing.T, server *redistest.Server, n int, near locker, open func(url string) (locker, error)) *tolds {
	t.Helper()
	found := &tolds{}
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if err := cutOnce(t, server, i, near, open, found); err != nil {
				t.Error(err)
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

// cutOnce cuts one link: what is sent is swallowed, or its connection ends before or after it was carried out, and new ones are not answered.
func cutOnce(t *testing.T, server *redistest.Server, i int, near locker, open func(url string) (locker, error), found *tolds) error {
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
	w := wish{name: fmt.Sprintf("cut-%d", i), ttl: longer}
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
	var heir holding
	var got int64
	next := make(chan error, 1)
	go func() {
		var err error
		heir, err = near.acquire(t.Context(), w)
		got = now()
		next <- err
	}()
	time.Sleep(rand.N(longer)) // some renewals come through
	gone.Store(true)
	proxy.SetDeaf(true)
	if err := <-next; err != nil {
		return fmt.Errorf("the next one: %w", err)
	}
	at := <-told
	found.add(at, believed, got)
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
