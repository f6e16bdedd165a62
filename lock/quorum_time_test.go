package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/quorum"
	"github.com/coatcheck/coatcheck/redisstore"
)

// quorumBubble runs a test on a quorum of embedded stores, in which an hour takes no time.
func quorumBubble(t *testing.T, config Config, test func(t *testing.T, locks *QuorumLocks)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		if config.Owner == "" {
			config.Owner = "tester"
		}
		test(t, openQuorum(t, []string{"embedded:", "embedded:", "embedded:"}, redisstore.Config{}, config))
	})
}

// Servers' clocks, and this process's, may each run faster or slower: 1 % of the TTL and 2 ms are
// not counted on, in addition to the margin.
func TestValidityOfAQuorumsLockLeavesRoomForDrift(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ ttl, margin, want time.Duration }{
		{10 * time.Second, 0, 10*time.Second - time.Second - 100*time.Millisecond - 2*time.Millisecond},
		{time.Minute, 0, time.Minute - time.Second - 600*time.Millisecond - 2*time.Millisecond},
		{100 * time.Millisecond, 0, (100 - 10 - 1 - 2) * time.Millisecond},
		{10 * time.Second, 3 * time.Second, 10*time.Second - 3*time.Second - 100*time.Millisecond - 2*time.Millisecond},
	} {
		quorumBubble(t, Config{AfterLoss: GrantAfterLoss, Margin: row.margin}, func(t *testing.T, locks *QuorumLocks) {
			held := mustQuorum(t, locks, "drift", Request{TTL: row.ttl})
			if got := held.Validity(); got != row.want {
				t.Errorf("ttl %v, margin %v: valid for %v, want %v", row.ttl, row.margin, got, row.want)
			}
			time.Sleep(row.ttl / 4)
			if got := held.Validity(); got != row.want-row.ttl/4 {
				t.Errorf("ttl %v: valid for %v a quarter later", row.ttl, got)
			}
			release(t, held)
		})
	}
}

func TestQuorumsLockIsRenewedForAsLongAsItIsHeld(t *testing.T) {
	t.Parallel()
	quorumBubble(t, grantAtOnce, func(t *testing.T, locks *QuorumLocks) {
		held := mustQuorum(t, locks, "long", Request{TTL: 10 * time.Second})
		for range 5 {
			time.Sleep(time.Minute)
			_, err := locks.TryAcquire(t.Context(), "long", Request{})
			wantOnly(t, err, ErrHeld)
			for _, each := range locks.each {
				got := info(t, each, "long")
				expect.MustEqual(t, "number of holders at one of the servers", len(got.Holders), 1)
				expect.Equal(t, "fence at one of the servers", got.Fence, held.Fence())
				expect.Equal(t, "owner at one of the servers", got.Holders[0].Owner, "tester")
				names, err := each.Names(t.Context(), "", "", 10)
				expect.Error(t, "Names", err, nil)
				expect.Equal(t, fmt.Sprintf("number of names, which are %q", names), len(names), 1)
			}
		}
		release(t, held)
		synctest.Wait()
		for _, each := range locks.each {
			names, err := each.Names(t.Context(), "", "", 10)
			expect.Error(t, "Names", err, nil)
			expect.Equal(t, fmt.Sprintf("number of names, which are %q", names), len(names), 0)
		}
	})
}

// The lock is taken away at one server: its holder goes on and takes it again there. At two, by any
// means, it is lost, and does not come back at either.
func TestLockThatIsBrokenAtAMajorityIsLostAndDoesNotComeBack(t *testing.T) {
	t.Parallel()
	quorumBubble(t, grantAtOnce, func(t *testing.T, locks *QuorumLocks) {
		held := mustQuorum(t, locks, "broken", Request{})
		broken := func(i int) {
			t.Helper()
			err := ErrNoHolder
			// it may be taken again just now, with another fence
			for try := 0; errors.Is(err, ErrNoHolder) && try < 100; try++ {
				_, err = locks.each[i].Break(t.Context(), "broken", info(t, locks.each[i], "broken").Fence)
			}
			expect.Error(t, fmt.Sprintf("Break at server %d", i), err, nil)
		}
		broken(0)
		time.Sleep(DefaultTTL)
		everywhere(t, locks, held)
		broken(0)
		broken(1)
		start := time.Now()
		<-held.Done()
		if took := time.Since(start); took > DefaultTTL/2 {
			t.Errorf("its context ended after %v", took)
		}
		wantIs(t, held.Err(), ErrLost)
		synctest.Wait()
		if has(t, locks.each[0], "broken", held.Token()) || has(t, locks.each[1], "broken", held.Token()) {
			t.Error("it came back")
		}
		next := mustQuorum(t, locks, "broken", Request{}) // two are free
		rising(t, held.Fence(), next.Fence())
		wantIs(t, held.Release(t.Context()), ErrLost)
		release(t, next)
	})
}

// A lock without a holder is free when its lease has ended at a majority, and a waiter has it then.
func TestWaiterOfAQuorumHasTheLockWhenTheLeaseHasEnded(t *testing.T) {
	t.Parallel()
	quorumBubble(t, Config{AfterLoss: GrantAfterLoss}, func(t *testing.T, locks *QuorumLocks) {
		for i, ttl := range []time.Duration{time.Second, 3 * time.Second, 5 * time.Second} {
			if _, err := locks.each[i].TryGrant(t.Context(), "silent", Request{TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		_, err := locks.TryAcquire(t.Context(), "silent", Request{})
		refused, _ := errors.AsType[*HeldError](err)
		// two must end, of those that it has answers of
		if refused == nil || refused.Left > 5*time.Second || refused.Left < 2900*time.Millisecond {
			t.Errorf("TryAcquire of what has leases of 1s, 3s and 5s: got %+v, want between 2.9s and 5s left", refused)
		}
		start := time.Now()
		held, err := locks.Acquire(t.Context(), "silent", Request{})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < 3*time.Second || took > 3*time.Second+defaultWindow/4 {
			t.Errorf("granted after %v", took)
		}
		release(t, held)
	})
}

// A new quorum, and one that may have lost leases, grants nothing until those have ended: by
// default.
func TestQuorumWaitsAfterALossByDefault(t *testing.T) {
	t.Parallel()
	quorumBubble(t, Config{LongestTTL: 10 * time.Second}, func(t *testing.T, locks *QuorumLocks) {
		start := time.Now()
		_, err := locks.TryAcquire(t.Context(), "new", Request{})
		expect.Equal(t, "wait of a new quorum", wantDoubt(t, err).Wait, 11*time.Second)
		_, err = locks.Acquire(t.Context(), "new", Request{Wait: time.Second})
		wantDoubt(t, err)
		held, err := locks.Acquire(t.Context(), "new", Request{})
		if took := time.Since(start); err != nil || took < 11*time.Second || took > 12*time.Second {
			t.Fatalf("%v after %v", err, took)
		}
		release(t, held)
	})
	locks := newQuorum(&quorum.Quorum{}, Config{})
	expect.Equal(t, "what is done after a loss by default", locks.config.AfterLoss, WaitAfterLoss)
	expect.Equal(t, "longest lease by default", locks.config.LongestTTL, DefaultTTL)
}

func TestContextOfTheCallerEndsAQuorumsLockAndReleaseStillGivesItBack(t *testing.T) {
	t.Parallel()
	quorumBubble(t, grantAtOnce, func(t *testing.T, locks *QuorumLocks) {
		ctx, cancel := context.WithCancel(t.Context())
		held, err := locks.Acquire(ctx, "parent", Request{})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-held.Done()
		wantIs(t, held.Err(), context.Canceled)
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		release(t, mustQuorum(t, locks, "parent", Request{}))
		for _, acquire := range []func(context.Context, string, Request) (*Lock, error){locks.Acquire, locks.TryAcquire} {
			_, err = acquire(ctx, "parent", Request{})
			wantIs(t, err, context.Canceled, redisstore.ErrRefused)
		}
	})
}

// The release of a failed attempt may reach a server late. It does not end another holder's lock,
// since each attempt has a token of its own.
func TestReleaseThatComesLateEndsNoLaterGrant(t *testing.T) {
	t.Parallel()
	quorumBubble(t, grantAtOnce, func(t *testing.T, locks *QuorumLocks) {
		failed := locks.attempt("late", Request{TTL: time.Second}.withDefaults(locks.config))
		for _, member := range failed.members {
			member.has = perhaps // its request was not answered
		}
		held := mustQuorum(t, locks, "late", Request{TTL: time.Second})
		if left := failed.clear(t.Context()); left == nil || !errors.Is(left, redisstore.ErrUnknownOutcome) {
			t.Error(left) // the request may come later still
		}
		time.Sleep(5 * time.Second)
		everywhere(t, locks, held)
		release(t, held)
	})
}

// The turn of a call may come when the attempt has been given back already, since a scheduler
// promises nothing: then it is not sent.
func TestCallWhoseTurnComesAfterTheReleaseIsNotSent(t *testing.T) {
	t.Parallel()
	quorumBubble(t, grantAtOnce, func(t *testing.T, locks *QuorumLocks) {
		failed := locks.attempt("turn", Request{}.withDefaults(locks.config))
		if left := failed.clear(t.Context()); left != nil {
			t.Error(left)
		}
		_, err := failed.members[0].enter(t.Context())
		wantOnly(t, err, redisstore.ErrUnavailable)
		failed.members[0].missing = true
		failed.members[0].tend(t.Context())
		nowhere(t, locks, "turn")

		released := locks.attempt("turn", Request{}.withDefaults(locks.config))
		held, err := released.acquire(t.Context(), t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release(t, held)
		_, err = released.members[1].raise(t.Context(), held.Fence())
		wantOnly(t, err, redisstore.ErrUnavailable)
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
