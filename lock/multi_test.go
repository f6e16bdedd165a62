package lock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

func several(t *testing.T, store *redisstore.Store) {
	// a lock that is handed over ends with the claim window, unless it is renewed by then
	patient := Config{Window: 10 * time.Second}
	locks, others := open(t, store, patient), open(t, store, patient)
	both, err := locks.AcquireAll(t.Context(), []string{"m2", "m1", "m2"}, Request{})
	if err != nil || len(both.Locks()) != 2 || both.Locks()[0].Name() != "m1" || both.Validity() <= 0 || both.Err() != nil {
		t.Fatalf("AcquireAll m2, m1, m2: got %v and error %v, want m1 and m2", both, err)
	}
	_, err = others.TryAcquireAll(t.Context(), []string{"m0", "m1"}, Request{})
	wantIs(t, err, ErrHeld)
	release(t, must(t, others, "m0", Request{})) // nothing was kept
	_, err = others.AcquireAll(t.Context(), []string{"m0", "m2"}, Request{Wait: 20 * time.Millisecond})
	wantIs(t, err, ErrHeld)
	expect.NoError(t, "Release", both.Release(t.Context()))
	wantIs(t, context.Cause(both.Context()), ErrReleased)
	for _, names := range [][]string{nil, make([]string, atOnce+1), {"a b"}} {
		_, err := locks.AcquireAll(t.Context(), names, Request{})
		wantIs(t, err, ErrInvalid)
	}

	var all sync.WaitGroup // in opposite orders, many times
	for i := range 8 {
		all.Go(func() {
			names := []string{"x", "y", "z"}
			names[0], names[i%3] = names[i%3], names[0]
			for range 5 {
				held, err := []*Locks{locks, others}[i%2].AcquireAll(t.Context(), names, Request{})
				if err != nil {
					t.Errorf("AcquireAll of %q: got error %v, want none", names, err)
					return
				}
				expect.Error(t, "Release", held.Release(t.Context()), nil)
			}
		})
	}
	all.Wait()
}

// leaving calls a function before each release of a lock is sent.
type leaving struct{ called func() }

func (l *leaving) CallStarted(ctx context.Context, op string) context.Context {
	if op == "lock_leave" && l.called != nil {
		l.called()
	}
	return ctx
}

// The work under several locks has ended when the first of them is given back.
func TestContextOfManyEndsBeforeTheFirstIsReleased(t *testing.T) {
	seen := &leaving{}
	locks := open(t, storetest.Open(t, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{{CallStarted: seen.CallStarted}}}), Config{})
	many, err := locks.AcquireAll(t.Context(), []string{"a", "b", "c"}, Request{})
	expect.NoError(t, "AcquireAll", err)
	releases := 0
	seen.called = func() {
		releases++
		expect.Error(t, "cause of the work's end when a release is sent", context.Cause(many.Context()), ErrReleased)
	}
	expect.Error(t, "Release", many.Release(t.Context()), nil)
	expect.Equal(t, "number of releases", releases, 3)
}

func elects(t *testing.T, store *redisstore.Store) {
	locks, others := open(t, store, Config{Window: MinTTL}), open(t, store, Config{})
	_, err := locks.leader(t.Context(), "chair")
	wantIs(t, err, ErrNoHolder)
	ann, err := locks.Campaign(t.Context(), "chair", Request{Owner: "ann"})
	expect.NoError(t, "Campaign chair", err)
	campaign := startWaiter(t, others, "chair", Request{Owner: "bob"}, 1)
	if leader, err := others.leader(t.Context(), "chair"); err != nil || leader.Owner != "ann" || leader.Fence != ann.Fence() {
		t.Fatalf("leader of chair: got %+v and error %v, want ann with fence %d", leader, err, ann.Fence())
	}
	var seen []string
	for leader, err := range locks.Leaders(t.Context(), "chair") {
		seen = append(seen, leader.Owner)
		if err != nil {
			wantIs(t, err, ErrNoHolder)
			break
		}
		switch leader.Owner {
		case "ann":
			release(t, ann)
		case "bob":
			release(t, campaign.granted(t))
		}
	}
	expect.Equal(t, "leaders seen", seen, []string{"ann", "bob", ""})
}
