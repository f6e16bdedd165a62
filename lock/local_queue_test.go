package lock

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// localWaiters waits until n requests with the defaults wait for a lock in the process.
func localWaiters(t testing.TB, locks *Locks, name string, n int) {
	t.Helper()
	expect.Eventually(t, "the local queue has that many", func() bool { return standing(locks, name) == n })
}

func standing(locks *Locks, name string) int {
	locks.queues.mu.Lock()
	defer locks.queues.mu.Unlock()
	if l := locks.queues.of[sameness{name, locks.config.Owner, DefaultTTL}]; l != nil {
		return len(l.waiting)
	}
	return 0
}

// noQueues fails the test if the process still has a local queue.
func noQueues(t testing.TB, locks *Locks) {
	t.Helper()
	locks.queues.mu.Lock()
	defer locks.queues.mu.Unlock()
	if n := len(locks.queues.of); n != 0 {
		t.Errorf("%d queues are left", n)
	}
}

// startLocalWaiters makes n requests of the process wait, one after the other.
func startLocalWaiters(t testing.TB, locks *Locks, name string, n int) (queue []waiter) {
	t.Helper()
	for i := range n {
		queue = append(queue, waitLocal(t, locks, name, Request{}))
		localWaiters(t, locks, name, i+1)
	}
	return queue
}

// A lock is handed on sixteen times within a process, in the order of arrival, without a request to
// Redis. The seventeenth has waited at Redis, after the one of another process that came before it,
// and so is served after that.
func TestLockIsHandedOnWithinAProcessWithoutAskingRedis(t *testing.T) {
	server := redistest.Start(t)
	var asked atomic.Int64
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if bytes.Contains(request, []byte(":lock:{handed}")) {
			asked.Add(1)
		}
		return redistest.Pass, nil
	})
	locks := open(t, storetest.Open(t, redisstore.Config{URL: proxy.URL()}), Config{})
	others := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{})
	locks.queues.unnoticed = time.Hour
	held := must(t, locks, "handed", Request{})
	rival := startWaiter(t, others, "handed", Request{}, 1)
	queue := startLocalWaiters(t, locks, "handed", handings+1)
	before := asked.Load()
	first, asks := held.Fence(), int64(0)
	for i, w := range queue[:handings] {
		release(t, held)
		next := w.granted(t)
		if held.Context().Err() == nil || held.Validity() > 0 {
			t.Error("two hold at once")
		}
		if i < handings-1 {
			asks = asked.Load() - before
		}
		held = next
		if want := first + int64(i) + 1; held.Fence() != want || held.Err() != nil {
			t.Errorf("fence %d, want %d; %v", held.Fence(), want, held.Err())
		}
		rival.stillWaits(t)
		shown, err := others.Get(t.Context(), "handed")
		expect.Error(t, "Get by another process", err, nil)
		expect.MustEqual(t, "number of holders that another process sees", len(shown.Holders), 1)
		expect.Equal(t, "fence that another process sees", shown.Holders[0].Fence, first)
		expect.Equal(t, "owner that another process sees", shown.Holders[0].Owner, "tester")
		wantHeld(t, others, "handed", Request{})
	}
	if asks != 0 {
		t.Errorf("%d requests while the lock was handed on", asks)
	}
	queued(t, others, "handed", 2) // the remaining waiter has asked by now
	release(t, held)
	between := rival.granted(t)
	queue[handings].stillWaits(t)
	release(t, between)
	last := queue[handings].granted(t)
	rising(t, held.Fence(), between.Fence(), last.Fence())
	if between.Fence() <= first+handings {
		t.Errorf("fence %d is one of those after %d", between.Fence(), first)
	}
	release(t, last)
	noQueues(t, locks)
}

// A holder's context ends before the lock is handed on: here that takes its time.
func TestContextOfTheHolderEndsBeforeTheLockIsHandedOn(t *testing.T) {
	locks := open(t, embeddedStore(t), Config{})
	held := must(t, locks, "told", Request{})
	next := startLocalWaiters(t, locks, "told", 1)[0]
	released := make(chan error, 1)
	locks.queues.mu.Lock()
	go func() { released <- held.Release(t.Context()) }()
	expect.Eventually(t, "the holder's context has ended", func() bool { return held.Context().Err() != nil && held.Validity() <= 0 })
	next.stillWaits(t)
	locks.queues.mu.Unlock()
	heir := next.granted(t)
	if err := <-released; err != nil || heir.lease != held.lease {
		t.Errorf("%v, fence %d after %d", err, heir.Fence(), held.Fence())
	}
	release(t, heir)
}

// A request that is not the same is not handed the lock on: it queues at Redis at once.
func TestOnlyTheSameRequestsHandALockOn(t *testing.T) {
	for _, row := range []struct {
		name        string
		holds, asks Request
	}{
		{"another owner", Request{}, Request{Owner: "other"}},
		{"a longer TTL", Request{TTL: time.Second}, Request{TTL: time.Minute}},
		{"a shorter TTL", Request{TTL: time.Minute}, Request{TTL: time.Second}},
		{"a token of the holder", Request{Token: secret.New()}, Request{}},
		{"a token of the next", Request{}, Request{Token: secret.New()}},
		{"a reader", Request{}, Request{Mode: Shared}},
		{"after a reader", Request{Mode: Shared}, Request{}},
		{"permits", Request{Capacity: 1}, Request{Capacity: 1}},
	} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			held := must(t, locks, "same", row.holds)
			next := settle(t, waitLocal(t, locks, "same", row.asks))
			if got := info(t, locks, "same"); got.Queue != 1 {
				t.Errorf("%s: %d wait at Redis", row.name, got.Queue)
			}
			release(t, held)
			heir := next.granted(t)
			if heir.lease == held.lease {
				t.Errorf("%s: it was handed on", row.name)
			}
			rising(t, held.Fence(), heir.Fence())
			release(t, heir)
			noQueues(t, locks)
		})
	}
	bubble(t, func(t *testing.T, store *redisstore.Store) { // leaders are seen
		locks := open(t, store, Config{})
		first, err := locks.Campaign(t.Context(), "leader", Request{})
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan *Lock)
		go func() {
			lock, err := locks.Campaign(t.Context(), "leader", Request{})
			if err != nil {
				t.Error(err)
			}
			second <- lock
		}()
		synctest.Wait()
		release(t, first)
		next := <-second
		if leader, err := locks.leader(t.Context(), "leader"); err != nil || leader.Fence != next.Fence() {
			t.Errorf("%+v %v, want %d", leader, err, next.Fence())
		}
		release(t, next)
	})
}

// A lease of which less than half remains, whose renewal is not confirmed, whose token others know,
// or that was lost, is given back instead, and the first waiter asks.
func TestDoubtfulLeaseIsGivenBackInsteadOfHandedOn(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, locks *Locks, held *Lock){
		"old": func(_ *testing.T, _ *Locks, held *Lock) {
			held.lease.confirmed(time.Now().Add(-held.first.TTL * 6 / 10))
		},
		"old by the wall clock": func(_ *testing.T, _ *Locks, held *Lock) {
			held.lease.confirmed(time.Now().Round(0).Add(-held.first.TTL * 6 / 10))
		},
		"a renewal is under way": func(_ *testing.T, _ *Locks, held *Lock) { held.lease.doubted() },
		"others know the token":  func(_ *testing.T, _ *Locks, held *Lock) { _ = held.Token() },
		"broken": func(t *testing.T, locks *Locks, held *Lock) {
			if _, err := locks.Break(t.Context(), held.Name(), held.Fence()); err != nil {
				t.Fatal(err)
			}
			<-held.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *redisstore.Store) {
				locks := open(t, store, Config{})
				held := must(t, locks, "doubt", Request{})
				first, second := settle(t, waitLocal(t, locks, "doubt", Request{})), settle(t, waitLocal(t, locks, "doubt", Request{}))
				harm(t, locks, held)
				if err := held.Release(t.Context()); (name == "broken") != (err != nil) {
					t.Error(err)
				}
				heir := first.granted(t)
				if heir.lease == held.lease {
					t.Error("it was handed on")
				}
				rising(t, held.Fence(), heir.Fence())
				second.stillWaits(t)
				release(t, heir)
				last := second.granted(t)
				if last.lease != heir.lease || last.Fence() != heir.Fence()+1 {
					t.Errorf("fence %d after %d: it was not handed on", last.Fence(), heir.Fence())
				}
				release(t, last)
				synctest.Wait()
				if n := info(t, locks, "doubt").Queue; n != 0 {
					t.Errorf("%d still wait", n)
				}
				noQueues(t, locks)
			})
		})
	}
}

// A holder that was handed a lock on counts on the remaining lease, and renews it.
func TestHandedOnLockHasTheRemainingLeaseAndIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		held := must(t, locks, "left", Request{})
		next := settle(t, waitLocal(t, locks, "left", Request{}))
		time.Sleep(5 * time.Second)
		before := held.Validity()
		release(t, held)
		heir := next.granted(t)
		if got := heir.Validity(); got != before || got > DefaultTTL-6*time.Second {
			t.Errorf("it counts on %v, and its predecessor counted on %v", got, before)
		}
		if since := heir.Since().Sub(held.Since()); since < 5*time.Second || since > 5*time.Second+time.Millisecond {
			t.Errorf("granted %v after its predecessor", since)
		}
		time.Sleep(10 * DefaultTTL)
		wantHeld(t, others, "left", Request{})
		if heir.Err() != nil {
			t.Error(heir.Err())
		}
		names, err := others.Names(t.Context(), "", "", 10)
		expect.Error(t, "Names", err, nil)
		expect.Equal(t, fmt.Sprintf("number of names, which are %q", names), len(names), 1)
		// it proves nothing any more
		wantIs(t, locks.Release(t.Context(), Grant{Name: "left", Token: held.Token()}), ErrLost)
		if _, err := others.Renew(t.Context(), Grant{Name: "left", Token: heir.Token(), Fence: heir.Fence()}); err != nil {
			t.Error(err)
		}
		release(t, heir)
		release(t, must(t, others, "left", Request{}))
		names, err = others.Names(t.Context(), "", "", 10)
		expect.Error(t, "Names", err, nil)
		expect.Equal(t, fmt.Sprintf("number of names, which are %q", names), len(names), 0)
		noQueues(t, locks)
	})
}

// A request that waits for longer than a quarter of a second has a place at Redis, which it gives
// back when the lock is handed on to it.
func TestFirstLocalWaiterQueuesAtRedisBeforeLong(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		held := must(t, locks, "seen", Request{})
		first, second := settle(t, waitLocal(t, locks, "seen", Request{})), settle(t, waitLocal(t, locks, "seen", Request{}))
		expect.Equal(t, "number of waiters for seen", info(t, locks, "seen").Queue, 0)
		for _, w := range []waiter{first, second} {
			time.Sleep(2 * worthListing)
			synctest.Wait()
			got := info(t, locks, "seen")
			expect.MustEqual(t, "number of waiters at Redis", got.Queue, 1)
			expect.Equal(t, "owner of the waiter at Redis", got.Waiters[0].Owner, "tester")
			release(t, held)
			next := w.granted(t)
			if next.lease != held.lease {
				t.Error("it was not handed on")
			}
			held = next
			synctest.Wait()
			expect.Equal(t, "number of waiters for seen", info(t, locks, "seen").Queue, 0)
		}
		release(t, held)
		release(t, must(t, locks, "seen", Request{}))
		noQueues(t, locks)
	})
}

// A lock that is handed on is broken by the fence that others see, and by no other of its run: its
// holder learns of it with its next renewal, and the new fence is larger than any that it was
// handed on with. Waiters of the process are served with larger ones still.
func TestLockThatWasHandedOnIsBrokenByTheFenceThatOthersSee(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		held := must(t, locks, "broken", Request{})
		first := held.Fence()
		queue := make([]waiter, 4)
		for i := range queue {
			queue[i] = settle(t, waitLocal(t, locks, "broken", Request{}))
		}
		for _, w := range queue[:2] {
			release(t, held)
			held = w.granted(t)
		}
		for more := range int64(3) {
			_, err := locks.Break(t.Context(), "broken", first+1+more)
			wantIs(t, err, ErrNoHolder)
		}
		minted, err := locks.Break(t.Context(), "broken", first)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		release(t, held) // this process does not know yet
		held = queue[2].granted(t)
		rising(t, first, held.Fence(), minted)
		if minted <= first+handings {
			t.Errorf("the fence %d does not shut out those after %d", minted, first)
		}
		<-held.Done()
		if took := time.Since(start); took > DefaultTTL/2 {
			t.Errorf("its context ended after %v", took)
		}
		heir := queue[3].granted(t) // it has waited at Redis before that
		rising(t, minted, heir.Fence())
		wantIs(t, held.Release(t.Context()), ErrLost)
		release(t, heir)
		noQueues(t, locks)
	})
}

// A request that gives up leaves nothing, wherever it is in the queue.
func TestCancelledWaiterOfAProcessLeavesNoTrace(t *testing.T) {
	for gone := range 3 {
		for _, seen := range []bool{false, true} {
			bubble(t, func(t *testing.T, store *redisstore.Store) {
				locks := open(t, store, Config{})
				held := must(t, locks, "gone", Request{})
				var queue []waiter
				for range 3 {
					queue = append(queue, settle(t, waitLocal(t, locks, "gone", Request{})))
				}
				if seen {
					time.Sleep(2 * worthListing) // the first has a place at Redis
				}
				queue[gone].cancel()
				wantIs(t, queue[gone].refused(t), ErrHeld, context.Canceled)
				synctest.Wait()
				_, err := locks.Acquire(t.Context(), "gone", Request{Wait: time.Millisecond})
				wantIs(t, err, ErrHeld)
				for i, w := range queue {
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
				noQueues(t, locks)
			})
		}
	}
}

// Some requests are cancelled at the very instant at which the lock is handed on to them; it goes
// on to the next then.
func TestCancellingWhileTheLockIsHandedOnLosesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		processes := []*Locks{open(t, store, Config{}), open(t, store, Config{})}
		processes[0].queues.unnoticed, processes[1].queues.unnoticed = time.Hour, time.Millisecond
		var inside, served atomic.Int64
		var all sync.WaitGroup
		for i := range 24 {
			locks := processes[i%2]
			all.Go(func() {
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
					lock, err := locks.Acquire(ctx, "cancel", Request{})
					if err == nil {
						if inside.Add(1) > 1 {
							t.Error("two are inside")
						}
						served.Add(1)
						inside.Add(-1)
						if err := lock.Release(ctx); err != nil {
							t.Error(err)
						}
					}
					cancel()
				}
			})
		}
		all.Wait()
		for _, locks := range processes {
			expect.Eventually(t, "the lock is free", func() bool {
				lock, err := locks.TryAcquire(t.Context(), "cancel", Request{})
				return err == nil && lock.Release(t.Context()) == nil
			})
			noQueues(t, locks)
		}
		if got := info(t, processes[0], "cancel"); got.Queue != 0 || served.Load() == 0 {
			t.Errorf("%d served; %+v", served.Load(), got)
		}
	})
}

// Holders whose context has ended, and that never release, are forgotten.
func TestHoldersThatNeverReleaseAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		for i := range 1000 {
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := locks.Acquire(ctx, fmt.Sprint("left-", i), Request{TTL: time.Second}); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		locks.queues.mu.Lock()
		defer locks.queues.mu.Unlock()
		if n := len(locks.queues.of); n > 100 {
			t.Errorf("%d queues are left", n)
		}
	})
}

// While Redis does not answer, each of the waiters of a process gets the error as soon as if it
// were alone.
func TestEveryWaiterOfAProcessGetsTheErrorOfAnOutage(t *testing.T) {
	server := redistest.Start(t)
	locks := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{Window: MinTTL})
	rival := open(t, storetest.Open(t, redisstore.Config{URL: server.URL()}), Config{Window: MinTTL})
	held := must(t, rival, "outage", Request{})
	locks.outage = time.Second
	queue := startLocalWaiters(t, locks, "outage", 8)
	queued(t, rival, "outage", 1)
	server.Kill()
	for _, w := range queue {
		wantIs(t, w.refused(t), redisstore.ErrUnavailable)
	}
	_ = held.Release(t.Context()) // it reaches no server
	noQueues(t, locks)
}
