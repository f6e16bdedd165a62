package lock

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// atGate is how many requests for a lock wait at the gate of a process.
func atGate(locks *Locks, name string) int {
	locks.gates.mu.Lock()
	defer locks.gates.mu.Unlock()
	if g := locks.gates.of[name]; g != nil {
		return len(g.waiting)
	}
	return 0
}

// noGates fails the test if the process still has a gate.
func noGates(t testing.TB, locks *Locks) {
	t.Helper()
	locks.gates.mu.Lock()
	defer locks.gates.mu.Unlock()
	expect.Equal(t, "number of gates that are left", len(locks.gates.of), 0)
}

// startAtGate starts n requests, of which the first asks Redis and the others wait at the gate.
func startAtGate(t testing.TB, locks *Locks, name string, n int) (line []waiter) {
	t.Helper()
	line = []waiter{waitLocal(t, locks, name, Request{})}
	queued(t, locks, name, 1)
	for i := 1; i < n; i++ {
		line = append(line, waitLocal(t, locks, name, Request{Owner: "another", TTL: time.Minute}))
		expect.Eventually(t, "that many wait at the gate", func() bool { return atGate(locks, name) == i })
	}
	return line
}

// A process has one place in the queue, whatever its requests are like; when one of them has the
// lock, the next one asks, and comes after the waiters that are there by then.
func TestOneGoroutineOfAProcessAsksAtATime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		held := must(t, locks, "gate", Request{})
		line := startAtGate(t, locks, "gate", 3)
		rival := startWaiter(t, others, "gate", Request{}, 2)
		fences := []int64{held.Fence()}
		for i, next := range []waiter{line[0], rival, line[1], line[2]} {
			release(t, held)
			held = next.granted(t)
			fences = append(fences, held.Fence())
			if i == 0 {
				queued(t, locks, "gate", 2) // the rival, and the next one of the process
			}
		}
		rising(t, fences...)
		release(t, held)
		noGates(t, locks)
	})
}

func TestOnlyPlainExclusiveRequestsWaitAtTheGate(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		held := must(t, locks, "gate", Request{})
		line := startAtGate(t, locks, "gate", 2)
		for i, request := range []Request{{Token: secret.New()}, {Mode: ModeShared}, {Permits: 2}} {
			line = append(line, settle(t, waitLocal(t, locks, "gate", request)))
			expect.Equal(t, "number of waiters at Redis", info(t, locks, "gate").Queue, 2+i)
		}
		wantHeld(t, locks, "gate", Request{})
		_, err := locks.Grant(t.Context(), "gate", Request{Wait: time.Millisecond})
		wantIs(t, err, ErrHeld)
		_, err = locks.Acquire(t.Context(), "gate", Request{Wait: time.Millisecond})
		wantIs(t, err, ErrHeld)
		expect.Equal(t, "number of requests at the gate", atGate(locks, "gate"), 1)
		for _, at := range []int{0, 2, 3, 4, 1} {
			release(t, held)
			held = line[at].granted(t)
		}
		release(t, held)
		noGates(t, locks)
	})
}

// A request that gives up leaves nothing, wherever it waits.
func TestCancelledRequestLeavesNothingAtTheGate(t *testing.T) {
	for gone := range 3 {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			held := must(t, locks, "gone", Request{})
			line := startAtGate(t, locks, "gone", 3)
			line[gone].cancel()
			wantIs(t, line[gone].refused(t), ErrHeld, context.Canceled)
			synctest.Wait()
			for i, w := range line {
				if i != gone {
					release(t, held)
					held = w.granted(t)
				}
			}
			release(t, held)
			synctest.Wait()
			got := info(t, locks, "gone")
			expect.Equal(t, "number of waiters in the end", got.Queue, 0)
			expect.Equal(t, "number of holders in the end", len(got.Holders), 0)
			noGates(t, locks)
		})
	}
}

// Some requests are cancelled at the very instant at which they may pass, or are granted the lock.
func TestCancellingAtAnyTimeLosesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		processes := []*Locks{open(t, store, Config{}), open(t, store, Config{})}
		var inside, served atomic.Int64
		var all sync.WaitGroup
		for i := range 24 {
			locks := processes[i%2]
			all.Go(func() {
				// a busy machine needs longer than 20 ms to serve one
				longest := 20 * time.Millisecond
				for n := 0; n < 20 || served.Load() == 0; n++ {
					if n >= 20 {
						longest *= 2
					}
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(longest))
					lock, err := locks.Acquire(ctx, "cancel", Request{})
					if err == nil {
						expect.Equal(t, "number of those inside", inside.Add(1), 1)
						served.Add(1)
						inside.Add(-1)
						expect.Error(t, "Release", lock.Release(ctx), nil)
					}
					cancel()
				}
			})
		}
		all.Wait()
		for _, locks := range processes {
			release(t, must(t, locks, "cancel", Request{}))
			noGates(t, locks)
		}
		if got := info(t, processes[0], "cancel"); got.Queue != 0 || served.Load() == 0 {
			t.Errorf("after %d were served: got %+v, want some served, and no waiter left", served.Load(), got)
		}
	})
}

// While Redis does not answer, each request of a process gets the error as soon as if it were
// alone.
func TestEveryRequestAtTheGateGetsTheErrorOfAnOutage(t *testing.T) {
	server := redistest.Start(t)
	locks := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{Window: MinTTL})
	rival := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{Window: MinTTL})
	held := must(t, rival, "outage", Request{})
	locks.outage = time.Second
	line := startAtGate(t, locks, "outage", 8)
	server.Kill()
	for _, w := range line {
		wantIs(t, w.refused(t), redisstore.ErrUnavailable)
	}
	_ = held.Release(t.Context()) // it reaches no server
	noGates(t, locks)
}
