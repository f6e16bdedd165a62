package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

func shows(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{Owner: "ann"})
	if got := info(t, locks, "shown"); got.Mode != "" || len(got.Holders) != 0 || got.Fence != 0 || got.Now.IsZero() {
		t.Errorf("%+v", got)
	}
	held := must(t, locks, "shown", Request{TTL: time.Minute})
	got := info(t, locks, "shown")
	holder := got.Holders[0]
	if got.Mode != Exclusive || len(got.Holders) != 1 || holder.Owner != "ann" || holder.Fence != held.Fence() || got.Fence != held.Fence() || !holder.Since.Equal(held.Since()) {
		t.Errorf("%+v", got)
	}
	if left := holder.Until.Sub(got.Now); left <= 0 || left > time.Minute {
		t.Errorf("%v left", left)
	}
	writer := inLine(t, locks, "shown", Request{Owner: "bob", Capacity: 5, Permits: 2}, 1)
	reader := inLine(t, locks, "shown", Request{Owner: "cid", Mode: Shared}, 2)
	got = info(t, locks, "shown")
	if got.Queue != 2 || got.Waiters[0].Owner != "bob" || got.Waiters[0].Mode != Permits || got.Waiters[0].Permits != 2 || got.Waiters[1].Owner != "cid" || got.Waiters[1].Mode != Shared ||
		got.Waiters[1].Since.Before(got.Waiters[0].Since) || got.Waiters[0].Since.Before(held.Since()) {
		t.Errorf("%+v", got)
	}
	release(t, held)
	w := writer.granted(t)
	got = info(t, locks, "shown")
	if got.Mode != Permits || got.Capacity != 5 || len(got.Holders) != 1 || got.Holders[0].Permits != 2 || got.Holders[0].Owner != "bob" || got.Holders[0].Fence != w.Fence() {
		t.Errorf("%+v", got)
	}
	release(t, w)
	release(t, reader.granted(t))
}

func breaks(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{})
	for _, request := range []Request{{}, {Mode: Shared}} {
		held := must(t, locks, "broken", request)
		next := inLine(t, locks, "broken", Request{Capacity: 1}, 1)
		_, err := locks.Break(t.Context(), "broken", held.Fence()+1)
		wantIs(t, err, ErrNoHolder)
		_, err = locks.Break(t.Context(), "broken", 0)
		wantIs(t, err, ErrNoHolder)
		minted, err := locks.Break(t.Context(), "broken", held.Fence())
		if err != nil {
			t.Fatal(err)
		}
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
	names := func(prefix, behind string, n int) string {
		names, err := locks.Names(t.Context(), prefix, behind, n)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, " ")
	}
	until(t, "all are listed", func() bool { return names("list.", "", 10)+" "+names("other", "", 10) == "list.a list.b list.c other" })
	if got := names("list.", "list.a", 1); got != "list.b" {
		t.Errorf("%q", got)
	}
	for _, lock := range held {
		release(t, lock)
	}
	if got := names("", "", 10); got != "" {
		t.Errorf("%q is left", got)
	}
	_, err := locks.Names(t.Context(), "", "", 0)
	wantIs(t, err, ErrRequest)
}
