package lock

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"
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
