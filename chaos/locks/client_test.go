//go:build check

package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/chaos/internal/locking"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

type (
	wish    = locking.Wish
	holding = locking.Holding
	locker  = locking.Locker
)

func now() int64 { return locking.Now() }

// requestOf is a wish as package lock has it.
func requestOf(w wish) lock.Request {
	request := lock.Request{TTL: cmp.Or(w.TTL, ttl), Wait: cmp.Or(w.Wait, 10*time.Second)}
	switch {
	case w.Shared:
		request.Mode = lock.ModeShared
	case w.Permits > 0:
		request.Take, request.Permits = w.Permits, capacity
	}
	return request
}

// fenced is package lock.
type fenced struct {
	store *redisstore.Store
	locks *lock.Locks
}

func openFenced(ctx context.Context, config redisstore.Config, window time.Duration) (*fenced, error) {
	store, err := redisstore.OpenConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &fenced{store, lock.New(store, lock.Config{Window: window})}, nil
}

func (f *fenced) Acquire(ctx context.Context, w wish) (holding, error) {
	held, err := f.locks.Acquire(ctx, w.Name, requestOf(w))
	if err != nil {
		return nil, err // and no holding that is nil inside
	}
	return held, nil
}

func (f *fenced) Lost(err error) bool { return errors.Is(err, lock.ErrLost) }

func (f *fenced) Close() error { return errors.Join(f.locks.Close(), f.store.Close()) }

// openers are the ways to lock of the roles.
var openers = map[string]func(ctx context.Context, task chaostest.Task) (locker, error){
	"fenced": func(ctx context.Context, task chaostest.Task) (locker, error) {
		return openFenced(ctx, redisstore.Config{URL: task.Store, Ack: task.Ack}, window)
	},
	// locks that wait after a loss, of which all replicas have to confirm each write
	"waiting": func(ctx context.Context, task chaostest.Task) (locker, error) {
		store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: task.Store, Ack: 2})
		if err != nil {
			return nil, err
		}
		return &fenced{store, lock.New(store, lock.Config{Window: window, AfterLoss: lock.AfterLossWait, LongestTTL: ttl, Skew: ttl / 5})}, nil
	},
	"naive": func(_ context.Context, task chaostest.Task) (locker, error) { return openNaive(task.Store) },
}

// deaf is the role of a peer that waits for good from the beginning, and does not end when it is
// asked to.
const deaf = "deaf"

// play is what a process does in a role, until it is asked to end.
func play(role string) error {
	if open, locks := openers[role]; locks {
		return locking.Play(role == "naive", open)
	}
	if role == deaf {
		signal.Ignore(syscall.SIGTERM)
		<-time.After(time.Hour)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch url := os.Getenv(chaostest.StoreVariable); role {
	case "waiter":
		return standForever(ctx, url)
	case "naive run":
		return runNaively(ctx, url)
	case "command":
		return beat(os.Getenv(chaostest.FileVariable))
	}
	return fmt.Errorf("no role is called %q", role)
}
