package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/notifier"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// bubble runs a test in which an hour takes no time.
func bubble(t *testing.T, test func(t *testing.T, store *redisstore.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, embeddedStore(t)) })
}

// settle lets everything happen that needs no time to pass.
func settle(t *testing.T, w waiter) waiter {
	t.Helper()
	synctest.Wait()
	w.stillWaits(t)
	return w
}

func TestRenewalsKeepALockForAsLongAsItIsHeld(t *testing.T) {
	for _, request := range []Request{{TTL: 10 * time.Second}, {TTL: 10 * time.Second, Mode: ModeShared}} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			held := must(t, locks, "long", request)
			for range 5 {
				time.Sleep(time.Minute)
				wantHeld(t, locks, "long", Request{})
			}
			got := info(t, locks, "long").Holders[0]
			expect.Error(t, "lock that is held for minutes", held.Err(), nil)
			expect.Equal(t, "fence that Redis knows", got.Fence, held.Fence())
			expect.Equal(t, "since when it is held", got.Since, held.Since())
			names, _, err := locks.List(t.Context(), "", "", 10)
			expect.Error(t, "Names", err, nil)
			expect.Equal(t, fmt.Sprintf("number of names, which are %q", names), len(names), 1)
			release(t, held)
		})
	}
}

// A waiter is served at the instant that the lock is given back, in every combination of modes,
// with no time passing: no waiter had to poll.
func TestHandOverTakesNoTime(t *testing.T) {
	requests := []Request{{}, {Mode: ModeShared}, {Permits: 2}, {Permits: 2, Take: 2}}
	for _, one := range requests {
		for _, next := range requests {
			bubble(t, func(t *testing.T, store *redisstore.Store) {
				mine, others := open(t, store, Config{}), open(t, store, Config{})
				blocker := must(t, mine, "swift", Request{})
				a := settle(t, wait(t, others, "swift", one))
				b := settle(t, wait(t, others, "swift", Request{}))
				c := settle(t, wait(t, mine, "swift", next))
				d := settle(t, wait(t, mine, "swift", Request{}))
				start := time.Now()
				release(t, blocker)
				for _, w := range []waiter{a, b, c, d} {
					release(t, w.granted(t))
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("%+v and %+v: it took %v", one, next, took)
				}
			})
		}
	}
}

func TestLeaseThatIsNotRenewedEnds(t *testing.T) {
	for _, request := range []Request{{}, {Mode: ModeShared}, {Mode: ModePermits}} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			request.TTL = 3 * time.Second
			grant, err := locks.TryGrant(t.Context(), "silent", request)
			expect.NoError(t, "TryGrant silent", err)
			start := time.Now()
			next := wait(t, locks, "silent", Request{}).granted(t)
			if took := time.Since(start); took < 3*time.Second || took > 3*time.Second+200*time.Millisecond {
				t.Errorf("%+v: free after %v", request, took)
			}
			rising(t, grant.Fence, next.Fence())
			_, err = locks.Renew(t.Context(), grant)
			wantIs(t, err, ErrLost)
			release(t, next)
		})
	}
}

// A waiter that was handed the lock and has died lets the window pass; the next one is served right
// then. The same with several dead ones of one process.
func TestDeadWaitersDelayTheQueueByOneWindowAtMost(t *testing.T) {
	for _, dead := range []int{1, 5} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks, others := open(t, store, Config{}), open(t, store, Config{})
			held := must(t, locks, "dead", Request{})
			bury(t, others, "dead", dead)
			next := settle(t, wait(t, locks, "dead", Request{}))
			release(t, held)
			start := time.Now()
			release(t, next.granted(t))
			if took := time.Since(start); took > defaultWindow+100*time.Millisecond || took < defaultWindow/2 {
				t.Errorf("%d dead: served after %v", dead, took)
			}
		})
	}
}

// bury puts waiters into the queue that will never learn that their turn has come, although their
// channel has a subscriber.
func bury(t *testing.T, locks *Locks, name string, n int) {
	t.Helper()
	locks.notifier.Listen(t.Context())
	for range n {
		a, err := locks.ask(name, Request{})
		expect.NoError(t, "ask", err)
		if reply, err := locks.enter(t.Context(), a, locks.inbox); err != nil || reply.Word() != "waiting" {
			t.Fatalf("enter of a waiter: got reply %v and error %v, want waiting", reply, err)
		}
	}
}

// Waiters whose process does not listen any more are passed over at once.
func TestWaitersWhoseProcessIsGoneArePassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, gone := open(t, store, Config{}), open(t, store, Config{})
		held := must(t, locks, "gone", Request{})
		bury(t, gone, "gone", 3)
		middle := settle(t, wait(t, locks, "gone", Request{}))
		bury(t, gone, "gone", 3)
		last := settle(t, wait(t, locks, "gone", Request{}))
		gone.notifier.Close()
		synctest.Wait()
		start := time.Now()
		release(t, held)
		release(t, middle.granted(t))
		release(t, last.granted(t))
		if took := time.Since(start); took != 0 {
			t.Errorf("served after %v", took)
		}
		time.Sleep(time.Minute) // they are forgotten by themselves
		expect.Equal(t, "number of waiters for gone", info(t, locks, "gone").Queue, 0)
	})
}

// The message that it is a waiter's turn does not arrive: the waiter polls, soon enough to claim
// the lock.
func TestLostMessageCostsLessThanAWindow(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		held := must(t, locks, "lost", Request{})
		others.notifier = notifier.New(store, others.inbox, others.log, func(string) (string, notification) {
			return "", notification{} // no waiter is notified
		})
		next := settle(t, wait(t, others, "lost", Request{}))
		release(t, held)
		start := time.Now()
		release(t, next.granted(t))
		if took := time.Since(start); took > defaultWindow {
			t.Errorf("served after %v", took)
		}
	})
}

// A lock that is free although it has waiters, as after a stall in which a message and a release
// crossed, goes to the first of them.
func TestFreeLockGoesToTheFirstWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks, others := open(t, store, Config{}), open(t, store, Config{})
		held := must(t, locks, "free", Request{})
		first := settle(t, wait(t, locks, "free", Request{}))
		second := settle(t, wait(t, others, "free", Request{}))
		drop := redisScript("return {'ok', redis.call('DEL', KEYS[1])}")
		if _, err := onstore.Run(t.Context(), store, drop, locks.keys("free")[:1]); err != nil {
			t.Fatalf("running a script: got error %v, want none", err)
		}
		wantHeld(t, others, "free", Request{}) // a later request makes sure that the first gets it
		synctest.Wait()
		release(t, first.granted(t))
		release(t, second.granted(t))
		wantIs(t, held.Release(t.Context()), ErrLost)
	})
}

func TestLockThatIsBrokenEndsAtItsNextRenewal(t *testing.T) {
	for _, request := range []Request{{}, {Mode: ModeShared}} {
		bubble(t, func(t *testing.T, store *redisstore.Store) {
			locks := open(t, store, Config{})
			held := must(t, locks, "taken", request)
			if _, err := locks.Break(t.Context(), "taken", held.Fence()); err != nil {
				t.Fatalf("Break taken: got error %v, want none", err)
			}
			start := time.Now()
			<-held.Done()
			if took := time.Since(start); took > DefaultTTL/2 {
				t.Errorf("its context ended after %v", took)
			}
			wantIs(t, held.Err(), ErrLost)
			wantIs(t, context.Cause(held.Context()), ErrLost)
			wantIs(t, held.Release(t.Context()), ErrLost)
		})
	}
}

func TestContextOfTheCallerEndsTheLockAndReleaseStillGivesItBack(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		held, err := locks.Acquire(ctx, "parent", Request{})
		expect.NoError(t, "Acquire parent", err)
		cancel()
		<-held.Done()
		wantIs(t, held.Err(), context.Canceled)
		expect.NoError(t, "Release", held.Release(ctx))
		release(t, must(t, locks, "parent", Request{}))
		_, err = locks.Acquire(ctx, "parent", Request{})
		wantIs(t, err, context.Canceled)
	})
}

func TestManyEndsWhenOneOfThemDoes(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		both, err := locks.AcquireAll(t.Context(), []string{"a", "b"}, Request{})
		expect.NoError(t, "AcquireAll", err)
		if _, err := locks.Break(t.Context(), "b", both.Locks()[1].Fence()); err != nil {
			t.Fatalf("Break b: got error %v, want none", err)
		}
		<-both.Done()
		wantIs(t, context.Cause(both.Context()), ErrLost)
		wantIs(t, both.Err(), ErrLost)
		wantIs(t, both.Release(t.Context()), ErrLost)
		release(t, must(t, locks, "a", Request{}))
	})
}

// Names that are used for a moment leave nothing: the fences go a minute after their leases.
func TestShortLivedNamesLeaveNothing(t *testing.T) { leavesNothing(t, 210) }

// leavesNothing uses that many names for a moment, in every mode and every way of ending.
func leavesNothing(t *testing.T, names int) {
	t.Helper()
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{})
		for i := range names {
			name := secret.New()
			request := []Request{{}, {Mode: ModeShared}, {Permits: 2}}[i%3]
			request.TTL = time.Second
			held := must(t, locks, name, request)
			if i%10 == 0 {
				w := settle(t, wait(t, locks, name, Request{TTL: time.Second}))
				release(t, held)
				held = w.granted(t)
			}
			if i%7 != 0 {
				release(t, held)
				continue
			}
			held.keeper.Stop() // its process is gone
			held.listing.stop()
		}
		time.Sleep(2 * time.Minute)
		expect.Equal(t, "keys two minutes later", keysIn(t, store), 0)
	})
}

// keysIn counts the keys of a store.
func keysIn(t *testing.T, store *redisstore.Store) int {
	t.Helper()
	reply, err := onstore.Run(t.Context(), store, redisScript("return {'ok', tostring(redis.call('DBSIZE'))}"), []string{"any"})
	expect.NoError(t, "running a script", err)
	n := 0
	expect.NoError(t, "Scan", reply.Scan(&n))
	return n
}

// redisScript makes a script for a test.
func redisScript(text string) *scripts.Script {
	return scripts.New("test", text).Following("", 0, 9, 0)
}

// After a loss nothing is granted until every lease that may be open has ended; what is held is
// kept, and after that all is as before.
func TestAfterALossNothingIsGrantedUntilOldLeasesHaveEnded(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		careful := open(t, store, Config{AfterLoss: AfterLossWait, LongestTTL: 10 * time.Second})
		start := time.Now()
		_, err := careful.TryAcquire(t.Context(), "a", Request{})
		doubt := wantDoubt(t, err)
		expect.Equal(t, "wait", doubt.Wait, 11*time.Second)
		held, err := careful.Acquire(t.Context(), "a", Request{})
		if err != nil || time.Since(start) < 11*time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		shared := must(t, careful, "s", Request{Mode: ModeShared})
		release(t, must(t, careful, "b", Request{})) // once for all names

		lose := redisScript("redis.call('SET', KEYS[1], 'another 0') return {'ok'}")
		if _, err := onstore.Run(t.Context(), store, lose, careful.keys("a")[5:]); err != nil {
			t.Fatalf("running a script: got error %v, want none", err)
		}
		start = time.Now()
		_, err = careful.TryAcquire(t.Context(), "b", Request{})
		wantDoubt(t, err)
		_, err = careful.TryAcquire(t.Context(), "s", Request{Mode: ModeShared})
		wantDoubt(t, err)
		expect.Equal(t, "number of holders after a refusal", len(info(t, careful, "b").Holders), 0)
		again, err := careful.TryGrant(t.Context(), "a", Request{Token: held.Token(), TTL: held.first.TTL})
		expect.Error(t, "Grant of what is held, asked for again", err, nil)
		expect.Equal(t, "fence of what is held", again.Fence, held.Fence())
		_, err = careful.Acquire(t.Context(), "b", Request{Wait: time.Second})
		wantDoubt(t, err)
		next := wait(t, careful, "a", Request{})
		time.Sleep(time.Second)
		release(t, held)
		release(t, shared)
		heir := next.granted(t)
		if took := time.Since(start); took < 11*time.Second || took > 16*time.Second {
			t.Errorf("granted after %v", took)
		}
		rising(t, held.Fence(), heir.Fence())
		release(t, heir)
	})
}

func wantDoubt(t *testing.T, err error) *fault.WaitError {
	t.Helper()
	wantIs(t, err, ErrInDoubt, redisstore.ErrRefused)
	doubt, _ := errors.AsType[*fault.WaitError](err)
	if doubt == nil || doubt.Wait <= 0 {
		t.Fatalf("got error %v, want one in doubt that says how long to wait", err)
	}
	return doubt
}

// Processes may have different claim windows. Redis keeps a lock that is handed over for that of
// the process which gives it back, and the heir counts on no more.
func TestHeirCountsOnTheWindowThatItHas(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		brief, patient := open(t, store, Config{Window: MinTTL}), open(t, store, Config{Window: 10 * time.Second})
		for _, request := range []Request{{TTL: time.Second}, {TTL: time.Minute}, {TTL: time.Second, Mode: ModeShared}} {
			held := must(t, brief, "window", Request{})
			heir := settle(t, wait(t, patient, "window", request))
			release(t, held)
			got := heir.granted(t)
			shown := info(t, brief, "window")
			if lease := shown.Holders[0].Until.Sub(shown.Now); got.Validity() > lease {
				t.Errorf("%+v: it counts on %v of a lease of %v", request, got.Validity(), lease)
			}
			release(t, got)
		}
	})
}

// A lease is kept for whole milliseconds, and its holder counts on no more.
func TestHolderCountsOnNoPartOfAMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T, store *redisstore.Store) {
		locks := open(t, store, Config{Margin: time.Nanosecond})
		for _, request := range []Request{{}, {Mode: ModeShared}} {
			request.TTL = time.Second + 900*time.Microsecond
			held := must(t, locks, "part", request)
			got := info(t, locks, "part")
			if lease := got.Holders[0].Until.Sub(got.Now); held.Validity() > lease {
				t.Errorf("mode %q: it counts on %v of a lease of %v", request.Mode, held.Validity(), lease)
			}
			release(t, held)
		}
	})
}
