package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func inOrder(t *testing.T, store *redisstore.Store) {
	processes := []*Locks{open(t, store, Config{}), open(t, store, Config{}), open(t, store, Config{})}
	held := must(t, processes[0], "line", Request{})
	var queue []waiter
	for i := range 9 {
		queue = append(queue, startWaiter(t, processes[i%3], "line", Request{}, i+1))
	}
	fences := []int64{held.Fence()}
	for i, waiter := range queue {
		release(t, held)
		held = waiter.granted(t)
		fences = append(fences, held.Fence())
		for _, later := range queue[i+1:] {
			later.stillWaits(t)
		}
		wantHeld(t, processes[0], "line", Request{})
	}
	rising(t, fences...)
	release(t, held)
	got := info(t, processes[0], "line")
	expect.Equal(t, "number of waiters in the end", got.Queue, 0)
	expect.Equal(t, "number of holders in the end", len(got.Holders), 0)
}

func cancelled(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	held := must(t, locks, "burst", Request{})
	var burst []waiter
	for i := range 20 {
		burst = append(burst, startWaiter(t, []*Locks{locks, others}[i%2], "burst", Request{}, i+1))
	}
	last := startWaiter(t, others, "burst", Request{}, 21)
	for _, w := range burst {
		w.cancel()
	}
	for _, w := range burst {
		wantIs(t, w.refused(t), ErrHeld, context.Canceled)
	}
	queued(t, locks, "burst", 1)
	release(t, held)
	release(t, last.granted(t))
}

// A waiter whose turn came, and that goes away before it learns of it, leaves the lock to the next.
func passesOn(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	held := must(t, locks, "pass", Request{})
	first := startWaiter(t, others, "pass", Request{}, 1)
	second := startWaiter(t, locks, "pass", Request{}, 2)
	others.notifier.Close() // it gets no notification
	release(t, held)
	first.cancel()
	select {
	case <-first.err:
	case lock := <-first.result: // it polled just then
		release(t, lock)
	}
	release(t, second.granted(t))
}

// A wait that is over before Redis was asked, as on a busy machine, still asks once: a free lock is
// granted, and a place is taken.
func asksOnceAtLeast(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	over := Request{Wait: time.Nanosecond}
	held, err := locks.Acquire(t.Context(), "over", over)
	if err != nil {
		t.Fatalf("Acquire of a free lock with a wait of %v: %v", over.Wait, err)
	}
	over.Token, over.KeepPlace = secret.New(), true
	_, err = locks.Grant(t.Context(), "over", over)
	wantIs(t, err, ErrHeld)
	expect.Equal(t, "number of waiters after a wait that keeps its place", info(t, locks, "over").Queue, 1)
	release(t, held)
	several, err := locks.AcquireAll(t.Context(), []string{"free", "more"}, Request{Wait: time.Nanosecond})
	expect.NoError(t, "AcquireAll of free locks", err)
	expect.Error(t, "Release", several.Release(t.Context()), nil)
}

func bounded(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	held := must(t, locks, "bounded", Request{})
	_, err := locks.Acquire(t.Context(), "bounded", Request{Wait: 30 * time.Millisecond})
	wantIs(t, err, ErrHeld)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its own bound is no deadline of the caller: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = locks.Acquire(ctx, "bounded", Request{})
	wantIs(t, err, ErrHeld, context.DeadlineExceeded)
	expect.Equal(t, "number of waiters for bounded", info(t, locks, "bounded").Queue, 0)
	release(t, held)
}
