package lock

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("left: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// grantLimit is how long a waiter waits: longer than any lease in these tests.
const grantLimit = 5 * time.Minute

// process is what one process has: locks of its own, with a subscription of their own.
func open(t testing.TB, store *redisstore.Store, config Config) *Locks {
	t.Helper()
	if config.Owner == "" {
		config.Owner = "tester"
	}
	locks := New(store, config)
	t.Cleanup(func() {
		expect.Error(t, "Close", locks.Close(), nil)
	})
	return locks
}

func embeddedStore(t testing.TB) *redisstore.Store {
	t.Helper()
	return storetest.Open(t, redisstore.Config{URL: "embedded:"})
}

// must acquires a lock at once.
func must(t testing.TB, locks *Locks, name string, request Request) *Lock {
	t.Helper()
	lock, err := locks.TryAcquire(t.Context(), name, request)
	expect.NoError(t, "TryAcquire", err)
	return lock
}

func release(t testing.TB, lock *Lock) {
	t.Helper()
	expect.NoError(t, "release", lock.Release(t.Context()))
}

// wantIs fails the test unless the error is all of these.
func wantIs(t testing.TB, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Fatalf("got the error %v, want %v", err, target)
		}
	}
}

// wantHeld fails the test unless a lock is refused.
func wantHeld(t testing.TB, locks *Locks, name string, request Request) {
	t.Helper()
	lock, err := locks.TryAcquire(t.Context(), name, request)
	if err == nil {
		t.Fatalf("granted with fence %d", lock.Fence())
	}
	wantIs(t, err, ErrHeld, redisstore.ErrRefused)
}

// waiter is an Acquire under way.
type waiter struct {
	result chan *Lock
	err    chan error
	cancel context.CancelFunc
}

// wait starts a waiter that asks Redis at once: it has a token, so it does not wait at the gate.
func wait(t testing.TB, locks *Locks, name string, request Request) waiter {
	t.Helper()
	request.Token = cmp.Or(request.Token, secret.New())
	return waitLocal(t, locks, name, request)
}

// waitLocal starts a waiter that passes the gate of its process.
func waitLocal(t testing.TB, locks *Locks, name string, request Request) waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := waiter{make(chan *Lock, 1), make(chan error, 1), cancel}
	go func() {
		lock, err := locks.Acquire(ctx, name, request)
		if err != nil {
			w.err <- err
			return
		}
		w.result <- lock
	}()
	return w
}

// startWaiter starts a wait and returns when n wait.
func startWaiter(t testing.TB, locks *Locks, name string, request Request, n int) waiter {
	t.Helper()
	w := wait(t, locks, name, request)
	queued(t, locks, name, n)
	return w
}

func queued(t testing.TB, locks *Locks, name string, n int) {
	t.Helper()
	expect.Eventually(t, "the queue has that many", func() bool { return info(t, locks, name).Queue == n })
}

func info(t testing.TB, locks *Locks, name string) Info {
	t.Helper()
	got, err := locks.Get(t.Context(), name)
	expect.NoError(t, "Get", err)
	return got
}

func (w waiter) granted(t testing.TB) *Lock {
	t.Helper()
	select {
	case lock := <-w.result:
		return lock
	case err := <-w.err:
		t.Fatalf("a waiter: got error %v, want the lock", err)
	case <-time.After(grantLimit):
		t.Fatalf("a waiter: got nothing within %v, want the lock", grantLimit)
	}
	return nil
}

func (w waiter) refused(t testing.TB) error {
	t.Helper()
	select {
	case lock := <-w.result:
		t.Fatalf("granted with fence %d", lock.Fence())
	case err := <-w.err:
		return err
	case <-time.After(grantLimit):
		t.Fatalf("a waiter: got nothing within %v, want a refusal", grantLimit)
	}
	return nil
}

// stillWaits fails the test if the waiter has got something.
func (w waiter) stillWaits(t testing.TB) {
	t.Helper()
	select {
	case lock := <-w.result:
		t.Fatalf("granted with fence %d", lock.Fence())
	case err := <-w.err:
		t.Fatalf("a waiter: got error %v, want it to wait", err)
	default:
	}
}

// rising fails the test unless fences rise.
func rising(t testing.TB, fences ...int64) {
	t.Helper()
	if !slices.IsSorted(fences) || len(slices.Compact(slices.Clone(fences))) != len(fences) || fences[0] <= 0 || fences[len(fences)-1] >= 1<<53 {
		t.Fatalf("fences %d", fences)
	}
}
