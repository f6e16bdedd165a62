package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/locking"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// Each peer locks, renews, tells a loss and gives back: what chaos/locks finds of it is not due to
// how it is used here.
func TestPeersLockAsTheyShould(t *testing.T) {
	for name, open := range peers {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			locks, err := open(t.Context(), server.URL())
			if err != nil {
				t.Fatalf("opening the peer: got error %v, want none", err)
			}
			defer locks.Close()
			held := acquire(t, locks)
			ctx, cancel := context.WithTimeout(t.Context(), 3*locking.TTL/2)
			defer cancel()
			if second, err := locks.Acquire(ctx, locking.Wish{Name: "one"}); err == nil {
				t.Errorf("got %v, though the lock is held and was renewed", second)
			}
			if err := held.Err(); err != nil {
				t.Errorf("got %v, want the lock held for longer than its lease", err)
			}
			if err := held.Release(t.Context()); err != nil {
				t.Errorf("got error %v when it was given back", err)
			}
			lost := acquire(t, locks)
			if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
				t.Fatalf("FLUSHALL: got error %v, want none", err)
			}
			for lost.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if err := lost.Release(t.Context()); err == nil || !locks.Lost(err) {
				t.Errorf("got error %v of a lock that was lost", err)
			}
		})
	}
}

func acquire(t *testing.T, locks locking.Locker) locking.Holding {
	t.Helper()
	for {
		held, err := locks.Acquire(t.Context(), locking.Wish{Name: "one"})
		if err == nil {
			return held
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a free lock: got error %v, want it to be granted", err)
		}
	}
}
