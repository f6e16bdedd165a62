package lock

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Every way to ask for a lock reports a closed store at once, also where the process has waited for
// locks before: a closed store knows nothing of the holder.
func TestLockOfAClosedStoreIsAClearError(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		fresh, used := open(t, store, Config{}), open(t, store, Config{})
		held := must(t, used, "closed", Request{Mode: ModeShared})
		for _, request := range []Request{{}, {Mode: ModeShared}} {
			w := wait(t, used, "closed", request)
			if request.Mode == ModeShared {
				release(t, w.granted(t))
				continue
			}
			queued(t, used, "closed", 1)
			w.cancel()
			wantIs(t, w.refused(t), ErrHeld)
		}
		release(t, held)
		expect.NoError(t, "closing the store", store.Close())
		for _, locks := range []*Locks{fresh, used} {
			for _, request := range []Request{{}, {Mode: ModeShared}, {Permits: 2}} {
				_, err := locks.Acquire(t.Context(), "other", request)
				expect.Error(t, "Acquire after the store was closed", err, redisstore.ErrClosed)
				_, err = locks.TryAcquire(t.Context(), "other", request)
				expect.Error(t, "TryAcquire after the store was closed", err, redisstore.ErrClosed)
				wantIs(t, err, redisstore.ErrUnavailable)
			}
		}
	})
}
