package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/storetest"
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
			"shared and exclusive":                       shared,
			"readers behind a writer wait":               phaseFair,
			"permits":                                    permits,
			"who holds and who waits":                    shows,
			"a broken lock":                              breaks,
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
		t.Fatal(err, first.Validity())
	}
	wantHeld(t, others, "a", Request{})
	wantHeld(t, mine, "a", Request{})
	_, err := others.TryAcquire(t.Context(), "a", Request{})
	held, ok := errors.AsType[*Held](err)
	if !ok || held.Since.UnixMilli() != first.Since().UnixMilli() || held.Left <= 0 || held.Left > DefaultTTL {
		t.Errorf("%+v", held)
	}
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
	for _, request := range []Request{{}, {Mode: Shared}, {Capacity: 3, Permits: 2}} {
		request.Token = secret.New()
		first, err := locks.Grant(t.Context(), "again", request, false)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			again, err := locks.Grant(t.Context(), "again", request, false)
			if err != nil || again.Fence != first.Fence || !again.Since.Equal(first.Since) {
				t.Fatalf("%+v %v after %+v", again, err, first)
			}
		}
		if got := info(t, locks, "again"); len(got.Holders) != 1 || got.Holders[0].Fence != first.Fence {
			t.Errorf("%+v", got)
		}
		if err := locks.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
}

func byValue(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	for _, request := range []Request{{TTL: time.Minute}, {TTL: time.Minute, Mode: Shared}} {
		grant, err := locks.Grant(t.Context(), "value", request, false)
		if err != nil || grant.Until.Sub(grant.Now) != time.Minute {
			t.Fatalf("%+v %v", grant, err)
		}
		named := Grant{Name: grant.Name, Token: grant.Token, Fence: grant.Fence, TTL: time.Hour}
		renewed, err := others.Renew(t.Context(), named) // as another process that was told
		if err != nil || renewed.Until.Sub(renewed.Now) != time.Hour {
			t.Fatalf("%+v %v", renewed, err)
		}
		again, err := locks.Renew(t.Context(), grant)
		if err != nil || again.Until.Sub(again.Now) != time.Minute {
			t.Fatalf("%+v %v", again, err)
		}
		for _, wrong := range []Grant{
			{Name: "value", Token: secret.New()}, {Name: "other", Token: grant.Token}, {Name: "value", Token: grant.Token, Fence: grant.Fence + 1},
		} {
			_, err := locks.Renew(t.Context(), wrong)
			wantIs(t, err, ErrLost, redisstore.ErrLost)
		}
		wantIs(t, locks.Release(t.Context(), Grant{Name: "value", Token: secret.New()}), ErrLost)
		if err := others.Release(t.Context(), named); err != nil {
			t.Fatal(err)
		}
		_, err = locks.Renew(t.Context(), grant)
		wantIs(t, err, ErrLost)
		wantIs(t, locks.Release(t.Context(), grant), ErrLost)
	}
}

func inOrder(t *testing.T, store *redisstore.Store) {
	processes := []*Locks{open(t, store, Config{}), open(t, store, Config{}), open(t, store, Config{})}
	held := must(t, processes[0], "line", Request{})
	var line []waiter
	for i := range 9 {
		line = append(line, inLine(t, processes[i%3], "line", Request{}, i+1))
	}
	fences := []int64{held.Fence()}
	for i, waiter := range line {
		release(t, held)
		held = waiter.granted(t)
		fences = append(fences, held.Fence())
		for _, later := range line[i+1:] {
			later.stillWaits(t)
		}
		wantHeld(t, processes[0], "line", Request{})
	}
	rising(t, fences...)
	release(t, held)
	if got := info(t, processes[0], "line"); got.Queue != 0 || len(got.Holders) != 0 {
		t.Errorf("%+v", got)
	}
}

func cancelled(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	held := must(t, locks, "burst", Request{})
	var burst []waiter
	for i := range 20 {
		burst = append(burst, inLine(t, []*Locks{locks, others}[i%2], "burst", Request{}, i+1))
	}
	last := inLine(t, others, "burst", Request{}, 21)
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

// A waiter whose turn came, and who goes away before it has heard of it, leaves the lock to the next.
func passesOn(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	held := must(t, locks, "pass", Request{})
	first := inLine(t, others, "pass", Request{}, 1)
	second := inLine(t, locks, "pass", Request{}, 2)
	others.post.close() // it hears nothing
	release(t, held)
	first.cancel()
	select {
	case <-first.err:
	case lock := <-first.result: // it looked by itself just then
		release(t, lock)
	}
	release(t, second.granted(t))
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
	if got := info(t, locks, "bounded"); got.Queue != 0 {
		t.Errorf("%+v", got)
	}
	release(t, held)
}

func shared(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	read := Request{Mode: Shared}
	a, b := must(t, locks, "rw", read), must(t, others, "rw", read)
	rising(t, a.Fence(), b.Fence())
	wantHeld(t, others, "rw", Request{})
	writer := inLine(t, others, "rw", Request{}, 1)
	release(t, a)
	writer.stillWaits(t)
	release(t, b)
	w := writer.granted(t)
	rising(t, a.Fence(), b.Fence(), w.Fence())
	wantHeld(t, locks, "rw", read)
	var readers []waiter
	for i := range 5 {
		readers = append(readers, inLine(t, locks, "rw", read, i+1))
	}
	release(t, w)
	for _, reader := range readers { // all of them at once
		defer release(t, reader.granted(t))
	}
	wantHeld(t, locks, "rw", Request{})
}

func phaseFair(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	read := Request{Mode: Shared}
	a := must(t, locks, "fair", read)
	writer := inLine(t, others, "fair", Request{}, 1)
	wantHeld(t, locks, "fair", read)
	late := []waiter{inLine(t, locks, "fair", read, 2), inLine(t, others, "fair", read, 3)}
	second := inLine(t, others, "fair", Request{}, 4)
	release(t, a)
	w := writer.granted(t)
	for _, reader := range late {
		reader.stillWaits(t)
	}
	release(t, w)
	r1, r2 := late[0].granted(t), late[1].granted(t)
	second.cancel()
	second.refused(t)
	release(t, r1)
	third := must(t, locks, "fair", read) // beside r2, since the writer has gone
	release(t, r2)
	release(t, third)
}

func permits(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{}), open(t, store, Config{})
	three := Request{Capacity: 3}
	two := Request{Capacity: 3, Permits: 2}
	a, b := must(t, locks, "sem", two), must(t, others, "sem", three)
	wantHeld(t, locks, "sem", three)
	wantHeld(t, locks, "sem", Request{})
	wantHeld(t, locks, "sem", Request{Mode: Shared})
	_, err := locks.Acquire(t.Context(), "sem", Request{Capacity: 4})
	wantIs(t, err, ErrCapacity, redisstore.ErrRefused)
	if other, _ := errors.AsType[*OtherCapacity](err); other.Capacity != 3 {
		t.Errorf("%+v", other)
	}
	big := inLine(t, others, "sem", two, 1)
	small := inLine(t, locks, "sem", three, 2)
	release(t, b)
	big.stillWaits(t)
	small.stillWaits(t) // it came later, although it would fit
	release(t, a)
	c, d := big.granted(t), small.granted(t)
	rising(t, a.Fence(), b.Fence(), c.Fence(), d.Fence())
	release(t, c)
	release(t, d)
	release(t, must(t, locks, "sem", Request{Capacity: 4}))
}

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

func refusesRequests(t *testing.T, store *redisstore.Store) {
	locks := open(t, store, Config{LongestTTL: time.Hour})
	for _, request := range []Request{
		{TTL: MinTTL - 1}, {TTL: time.Hour + 1}, {TTL: -1}, {Mode: "other"}, {Permits: 2}, {Mode: Shared, Capacity: 1}, {Mode: Permits}, {Capacity: -1}, {Capacity: 2, Permits: 3},
		{Capacity: MaxCapacity + 1}, {Capacity: 2, Permits: -1}, {Owner: "a b"}, {Owner: strings.Repeat("a", 201)}, {Token: "short"}, {Wait: -1},
	} {
		_, err := locks.Acquire(t.Context(), "valid", request)
		wantIs(t, err, ErrRequest, redisstore.ErrRefused)
	}
	for _, name := range []string{"", "a b", "{a}", "a/b", strings.Repeat("a", 201)} {
		_, err := locks.TryAcquire(t.Context(), name, Request{})
		wantIs(t, err, ErrRequest)
		_, err = locks.Get(t.Context(), name)
		wantIs(t, err, ErrRequest)
		_, err = locks.Break(t.Context(), name, 1)
		wantIs(t, err, ErrRequest)
		_, err = locks.Renew(t.Context(), Grant{Name: name, Token: secret.New()})
		wantIs(t, err, ErrRequest)
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
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d are inside", n)
				}
				if before := last.Swap(lock.Fence()); before >= lock.Fence() {
					t.Errorf("fence %d behind %d", lock.Fence(), before)
				}
				inside.Add(-1)
				if err := lock.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
