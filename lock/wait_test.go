package lock

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
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
	locks := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL(), Timeout: time.Second}), Config{})
	held := must(t, locks, "warm", Request{})
	next := startWaiter(t, locks, "warm", Request{}, 1) // from now on the process listens
	release(t, held)
	release(t, next.granted(t))
	cut.Store(true)
	for _, mode := range []Mode{ModeExclusive, ModeShared} {
		_, err := locks.Acquire(t.Context(), "cold", Request{Mode: mode, Wait: 10 * time.Millisecond})
		wantIs(t, err, redisstore.ErrUnknownOutcome)
		if errors.Is(err, ErrHeld) {
			t.Errorf("mode %s: got %v, want an error that names no holder", mode, err)
		}
	}
}

// A waiter that keeps its place and has no request under way gets the lock for the claim window,
// also if a holder of its own process gives it back. If it does not ask within it, the next one has
// the lock; if it does, it has its whole TTL.
func TestPlaceWithoutARequestDelaysTheNextByAWindow(t *testing.T) {
	for name, asks := range map[string]bool{"it does not ask again": false, "it asks again": true} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			held := must(t, locks, "kept", Request{})
			kept := Request{TTL: time.Hour, Token: secret.New(), KeepPlace: true, Wait: 20 * time.Millisecond}
			_, err := locks.Grant(t.Context(), "kept", kept)
			wantIs(t, err, ErrHeld)
			next := startWaiter(t, locks, "kept", Request{}, 2)
			release(t, held)
			released := time.Now()
			if asks {
				grant, err := locks.Grant(t.Context(), "kept", kept)
				if err != nil || grant.Until.Sub(grant.Now) != time.Hour {
					t.Fatalf("%s: got %+v, %v, want the whole TTL", name, grant, err)
				}
				if err := locks.Release(t.Context(), grant); err != nil {
					t.Errorf("%s: its release: %v", name, err)
				}
			}
			release(t, next.granted(t))
			if took := time.Since(released); took > 2*defaultWindow {
				t.Errorf("%s: the next one had the lock after %v, want two windows at most", name, took)
			}
		})
	}
}
