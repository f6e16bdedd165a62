package lock

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A wait that is over before Redis has answered for the first time ends with what became of the
// request, and not as if others held the lock: no holder is known.
func TestWaitWithoutAnAnswerIsNotToldOfAHolder(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var cut atomic.Bool
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if cut.Load() && bytes.Contains(request, []byte(":lock:{")) {
			return redistest.Swallow, nil
		}
		return redistest.Pass, nil
	})
	locks := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: 200 * time.Millisecond}), Config{})
	held := must(t, locks, "warm", Request{})
	next := startWaiter(t, locks, "warm", Request{}, 1) // from now on the process listens
	release(t, held)
	release(t, next.granted(t))
	cut.Store(true)
	for _, mode := range []Mode{Exclusive, Shared} {
		_, err := locks.Acquire(t.Context(), "cold", Request{Mode: mode, Wait: 10 * time.Millisecond})
		wantIs(t, err, redisstore.ErrUnknownOutcome)
		if errors.Is(err, ErrHeld) {
			t.Errorf("mode %s: got %v, want an error that names no holder", mode, err)
		}
	}
}

// A request that has to ask Redis at the very moment at which its wait is over does not wait on.
func TestWaitEndsAlsoIfItHasToAskAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		for range 200 {
			a, err := locks.ask("end", Request{Wait: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			a.turn, a.mustAsk = make(chan struct{}), make(chan struct{})
			time.AfterFunc(a.Wait, func() { close(a.mustAsk) })
			if err := locks.waitLocal(t.Context(), a); err == nil && a.Wait <= 0 {
				t.Fatalf("it is to ask with a wait of %v, which has no bound", a.Wait)
			}
			synctest.Wait()
		}
	})
}
