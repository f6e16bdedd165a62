package lock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func shows(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{Owner: "ann"})
	got := info(t, locks, "shown")
	expect.Equal(t, "Get of a lock that is not in use", got, Info{Now: got.Now}, cmpopts.EquateEmpty())
	expect.Equal(t, "it has no time of the server", got.Now.IsZero(), false)
	held := must(t, locks, "shown", Request{TTL: time.Minute})
	got = info(t, locks, "shown")
	expect.MustEqual(t, "number of holders", len(got.Holders), 1)
	holder := got.Holders[0]
	expect.Equal(t, "mode of a held lock", got.Mode, ModeExclusive)
	expect.Equal(t, "owner of its holder", holder.Owner, "ann")
	expect.Equal(t, "fence of its holder", holder.Fence, held.Fence())
	expect.Equal(t, "fence of the lock", got.Fence, held.Fence())
	expect.Equal(t, "since when its holder has it", holder.Since, held.Since())
	if left := holder.Until.Sub(got.Now); left <= 0 || left > time.Minute {
		t.Errorf("%v left", left)
	}
	writer := startWaiter(t, locks, "shown", Request{Owner: "bob", Permits: 5, Take: 2}, 1)
	reader := startWaiter(t, locks, "shown", Request{Owner: "cid", Mode: ModeShared}, 2)
	got = info(t, locks, "shown")
	expect.MustEqual(t, "number of waiters", got.Queue, 2)
	first, second := got.Waiters[0], got.Waiters[1]
	expect.Equal(t, "first waiter", first, Waiter{Owner: "bob", Mode: ModePermits, Take: 2, Since: first.Since})
	expect.Equal(t, "owner of the second waiter", second.Owner, "cid")
	expect.Equal(t, "mode of the second waiter", second.Mode, ModeShared)
	if second.Since.Before(first.Since) || first.Since.Before(held.Since()) {
		t.Errorf("they wait since %v and %v, want the order in which they came, after %v", first.Since, second.Since, held.Since())
	}
	release(t, held)
	w := writer.granted(t)
	got = info(t, locks, "shown")
	expect.MustEqual(t, "number of holders after the hand-over", len(got.Holders), 1)
	expect.Equal(t, "mode after the hand-over", got.Mode, ModePermits)
	expect.Equal(t, "capacity after the hand-over", got.Permits, 5)
	expect.Equal(t, "permits of the holder", got.Holders[0].Take, 2)
	expect.Equal(t, "owner of the permits", got.Holders[0].Owner, "bob")
	expect.Equal(t, "fence of the permits", got.Holders[0].Fence, w.Fence())
	release(t, w)
	release(t, reader.granted(t))
}

// A lock that has all holders that there can be is held for the next one, who is told why.
func isFull(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	for range MaxHolders {
		_, err := locks.TryGrant(t.Context(), "full", Request{Permits: MaxPermits, TTL: time.Hour})
		expect.MustEqual(t, "error of TryGrant", err, nil)
	}
	for name, get := range map[string]func(context.Context, string, Request) (Grant, error){"TryGrant": locks.TryGrant, "Grant": locks.Grant} {
		_, err := get(t.Context(), "full", Request{Permits: MaxPermits, Wait: time.Millisecond})
		wantIs(t, err, ErrHeld)
		expect.Contains(t, name+" of a lock that is full", err.Error(), "and by 255 more; a lock has at most 256 holders")
	}
}

// What is shown of a lock is bounded, however many hold it.
func showsSome(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	for range 120 {
		_, err := locks.TryGrant(t.Context(), "many", Request{Mode: ModeShared, TTL: time.Hour})
		expect.NoError(t, "TryGrant many", err)
	}
	got := info(t, locks, "many")
	expect.Equal(t, "holders that are shown", len(got.Holders), 100)
	expect.Equal(t, "further holders", got.Further, 20)
	summary, err := locks.Summary(t.Context(), "many")
	expect.NoError(t, "Summary many", err)
	expect.Equal(t, "holders that a summary shows", len(summary.Holders), 10)
	expect.Equal(t, "further holders of a summary", summary.Further, 110)
}

func breaks(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	for _, request := range []Request{{}, {Mode: ModeShared}} {
		held := must(t, locks, "broken", request)
		next := startWaiter(t, locks, "broken", Request{Mode: ModePermits}, 1)
		_, err := locks.Break(t.Context(), "broken", held.Fence()+1)
		wantIs(t, err, ErrNoHolder)
		_, err = locks.Break(t.Context(), "broken", 0)
		wantIs(t, err, ErrNoHolder)
		minted, err := locks.Break(t.Context(), "broken", held.Fence())
		expect.NoError(t, "Break broken", err)
		heir := next.granted(t)
		rising(t, held.Fence(), minted, heir.Fence())
		_, err = locks.Renew(t.Context(), held.first)
		wantIs(t, err, ErrLost)
		wantIs(t, held.Release(t.Context()), ErrLost)
		release(t, heir)
	}
}

func lists(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	var held []*Lock
	for _, name := range []string{"list.b", "list.a", "list.c", "other"} {
		held = append(held, must(t, locks, name, Request{}))
	}
	page := func(prefix, after string, n int) (names, next string) {
		list, next, err := locks.List(t.Context(), prefix, after, n)
		expect.NoError(t, "List", err)
		return strings.Join(list, " "), next
	}
	names := func(prefix, after string, n int) string {
		names, _ := page(prefix, after, n)
		return names
	}
	expect.Eventually(t, "all are listed", func() bool { return names("list.", "", 10)+" "+names("other", "", 10) == "list.a list.b list.c other" })
	expect.Equal(t, "names that begin with list., after list.a, one of them", names("list.", "list.a", 1), "list.b")
	for after, want := range map[string][2]string{"": {"list.a list.b", "list.b"}, "list.a": {"list.b list.c", ""}, "list.b": {"list.c", ""}} {
		names, next := page("list.", after, 2)
		expect.Equal(t, "two names after "+after+", and where the next page begins", [2]string{names, next}, want)
	}
	for _, lock := range held {
		release(t, lock)
	}
	expect.Equal(t, "names of locks that were released", names("list.", "", 10)+names("other", "", 10), "")
	_, _, err := locks.List(t.Context(), "", "", 0)
	wantIs(t, err, ErrInvalid)
}
