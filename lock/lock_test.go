package lock

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestLocksOnEveryKindOfStore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		for name, test := range map[string]func(*testing.T, *redisstore.Store){
			"a lock excludes":                            excludes,
			"the same token gets the same grant":         repeats,
			"a grant by value":                           byValue,
			"the queue is first in, first out":           inOrder,
			"a waiter that is cancelled":                 cancelled,
			"a cancelled waiter passes its lock on":      passesOn,
			"bounded waiting":                            bounded,
			"a wait that is over at once":                asksOnceAtLeast,
			"shared and exclusive":                       shared,
			"readers after a writer wait":                phaseFair,
			"permits":                                    permits,
			"a lock with one permit":                     onePermit,
			"holders and waiters":                        shows,
			"more holders than are shown":                showsSome,
			"as many holders as there can be":            isFull,
			"a broken lock":                              breaks,
			"a lock that is kept for a while":            keeps,
			"names of locks that are held":               lists,
			"requests that are not valid":                refusesRequests,
			"two processes, many waiters, one at a time": manyAtOnce,
			"several locks at once":                      several,
			"election":                                   elects,
		} {
			t.Run(name, func(t *testing.T) { test(t, store) })
		}
	})
}

func excludes(t *testing.T, store *redisstore.Store) {
	mine, others := open(t, store, Config{}), open(t, store, Config{})
	first := must(t, mine, "a", Request{})
	if err := first.Err(); err != nil || first.Validity() <= 0 || first.Context().Err() != nil || first.Name() != "a" {
		t.Fatalf("a fresh lock %s: got error %v and a validity of %v, want it to be held", first.Name(), err, first.Validity())
	}
	wantHeld(t, others, "a", Request{})
	wantHeld(t, mine, "a", Request{})
	_, err := others.TryAcquire(t.Context(), "a", Request{})
	held, ok := errors.AsType[*HeldError](err)
	if !ok || held.Left <= 0 || held.Left > DefaultTTL {
		t.Fatalf("TryAcquire of a held lock: got error %v, want a Held with up to %v left", err, DefaultTTL)
	}
	expect.Equal(t, "since when it is held, in ms", held.Since.UnixMilli(), first.Since().UnixMilli())
	second := must(t, others, "b", Request{})
	release(t, first)
	release(t, first) // again does nothing
	wantIs(t, first.Err(), ErrReleased)
	third := must(t, others, "a", Request{})
	rising(t, first.Fence(), third.Fence())
	release(t, second)
	release(t, third)
}

func repeats(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	for _, request := range []Request{{}, {Mode: ModeShared}, {Permits: 3, Take: 2}} {
		request.Token = secret.New()
		first, err := locks.TryGrant(t.Context(), "again", request)
		expect.NoError(t, "TryGrant again", err)
		for range 3 {
			again, err := locks.TryGrant(t.Context(), "again", request)
			expect.MustEqual(t, "error of a Grant that is asked for again", err, nil)
			expect.MustEqual(t, "fence of a Grant that is asked for again", again.Fence, first.Fence)
			expect.MustEqual(t, "since when the Grant holds that is asked for again", again.Since, first.Since)
		}
		got := info(t, locks, "again")
		expect.MustEqual(t, "number of holders", len(got.Holders), 1)
		expect.Equal(t, "fence of the holder", got.Holders[0].Fence, first.Fence)
		expect.NoError(t, "Release", locks.Release(t.Context(), first))
	}
}

func byValue(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	for _, request := range []Request{{TTL: time.Minute}, {TTL: time.Minute, Mode: ModeShared}} {
		grant, err := locks.TryGrant(t.Context(), "value", request)
		expect.MustEqual(t, "error of Grant", err, nil)
		expect.MustEqual(t, "lease that is granted", grant.Until.Sub(grant.Now), time.Minute)
		named := Grant{Name: grant.Name, Token: grant.Token, Fence: grant.Fence, TTL: time.Hour}
		renewed, err := others.Renew(t.Context(), named) // as another process that knows the grant
		expect.MustEqual(t, "error of another process's Renew", err, nil)
		expect.MustEqual(t, "lease after another process's Renew", renewed.Until.Sub(renewed.Now), time.Hour)
		again, err := locks.Renew(t.Context(), grant)
		expect.MustEqual(t, "error of Renew", err, nil)
		expect.MustEqual(t, "lease after Renew", again.Until.Sub(again.Now), time.Minute)
		for _, wrong := range []Grant{
			{Name: "value", Token: secret.New()}, {Name: "other", Token: grant.Token}, {Name: "value", Token: grant.Token, Fence: grant.Fence + 1},
		} {
			_, err := locks.Renew(t.Context(), wrong)
			wantIs(t, err, ErrLost, redisstore.ErrLost)
		}
		wantIs(t, locks.Release(t.Context(), Grant{Name: "value", Token: secret.New()}), ErrLost)
		expect.NoError(t, "Release", others.Release(t.Context(), named))
		_, err = locks.Renew(t.Context(), grant)
		wantIs(t, err, ErrLost)
		wantIs(t, locks.Release(t.Context(), grant), ErrLost)
	}
}

func refusesRequests(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{LongestTTL: time.Hour})
	for _, request := range []Request{
		{TTL: MinTTL - 1}, {TTL: time.Hour + 1}, {TTL: -1}, {Mode: "other"}, {Take: 2}, {Mode: ModeShared, Permits: 2}, {Mode: ModePermits, Take: 2}, {Permits: -1}, {Permits: 2, Take: 3},
		{Permits: MaxPermits + 1}, {Permits: 2, Take: -1}, {Owner: "a b"}, {Owner: strings.Repeat("a", 201)}, {Token: "short"}, {Wait: -1}, {KeepPlace: true},
	} {
		_, err := locks.Acquire(t.Context(), "valid", request)
		wantIs(t, err, ErrInvalid, redisstore.ErrRefused)
	}
	for _, name := range []string{"", "a b", "{a}", "a/b", strings.Repeat("a", 201)} {
		_, err := locks.TryAcquire(t.Context(), name, Request{})
		wantIs(t, err, ErrInvalid)
		_, err = locks.Get(t.Context(), name)
		wantIs(t, err, ErrInvalid)
		_, err = locks.Break(t.Context(), name, 1)
		wantIs(t, err, ErrInvalid)
		_, err = locks.Renew(t.Context(), Grant{Name: name, Token: secret.New()})
		wantIs(t, err, ErrInvalid)
	}
}

func manyAtOnce(t *testing.T, store *redisstore.Store) {
	const rounds, callers = 10, 16
	processes := []*Locks{open(t, store, Config{}), open(t, store, Config{})}
	var inside, last atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range rounds {
				lock, err := processes[i%2].Acquire(t.Context(), "busy", Request{})
				if err != nil {
					t.Errorf("Acquire busy: got error %v, want none", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				if before := last.Swap(lock.Fence()); before >= lock.Fence() {
					t.Errorf("fence %d after %d", lock.Fence(), before)
				}
				inside.Add(-1)
				expect.Error(t, "Release", lock.Release(t.Context()), nil)
			}
		})
	}
	all.Wait()
}
