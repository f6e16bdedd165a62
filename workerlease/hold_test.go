package workerlease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// hold holds a worker id until the test ends.
func (p pools) hold(t testing.TB, pool string, request workerlease.Request, options workerlease.HoldOptions) *workerlease.Holder {
	t.Helper()
	h, err := p.Hold(t.Context(), pool, request, options)
	if err != nil {
		t.Fatalf("hold %s: %v", pool, err)
	}
	t.Cleanup(func() { _ = h.Release(context.Background(), time.Time{}) })
	return h
}

// idOf is the worker id that is held.
func idOf(t testing.TB, h *workerlease.Holder) int {
	t.Helper()
	lease, err := h.Lease()
	if err != nil {
		t.Errorf("not held: %v", err)
		return -1
	}
	return lease.Worker
}

func TestHoldKeepsAWorkerIDForHours(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		h := p.hold(t, "p", of(1), workerlease.HoldOptions{})
		first, err := h.Current()
		expect.NoError(t, "Current", err)
		for range 12 {
			time.Sleep(10 * time.Minute)
			lease, err := h.Lease()
			if err != nil || lease.Worker != first.WorkerID || lease.Fence != first.Fence || !lease.NotBefore.Equal(first.NotBefore) || !lease.NotAfter.After(time.Now()) {
				t.Fatalf("%+v %v after %+v", lease, err, first)
			}
			if off := time.Since(lease.At) - time.Since(lease.Time); off < -time.Millisecond || off > time.Millisecond {
				t.Fatalf("its clock is off by %v", off)
			}
		}
		used := time.Now()
		expect.Error(t, "Release", h.Release(t.Context(), used), nil)
		p.acquire(t, "p", of(1)) // the other id, which was never used
		if next := p.acquire(t, "p", of(1)); next.WorkerID != first.WorkerID || next.NotBefore.Before(used) || next.NotBefore.After(used.Add(time.Millisecond)) {
			t.Errorf("%+v, used until %v", next, used)
		}
	})
}

func TestHolderWaitsForAFullPool(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		leases := p.fill(t, "p", 1)
		began := time.Now()
		if _, err := p.Hold(t.Context(), "p", of(1), workerlease.HoldOptions{Wait: -1}); !errors.Is(err, workerlease.ErrExhausted) || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := p.Hold(t.Context(), "p", of(1), workerlease.HoldOptions{Wait: 20 * time.Second}); !errors.Is(err, workerlease.ErrExhausted) || time.Since(began) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		h := p.hold(t, "p", of(1), workerlease.HoldOptions{Wait: 20 * time.Second})
		if took := time.Since(began); took < 30*time.Second || took > 38*time.Second || idOf(t, h) != leases[0].WorkerID {
			t.Errorf("after %v it holds %d", took, idOf(t, h))
		}
		p.wantLost(t, "p", 0, leases[0].Token)
		second := p.hold(t, "p", of(1), workerlease.HoldOptions{Wait: 20 * time.Second})
		time.AfterFunc(7*time.Second, func() { _ = second.Release(context.Background(), time.Now()) })
		began = time.Now()
		p.hold(t, "p", of(1), workerlease.HoldOptions{Wait: time.Minute})
		if took := time.Since(began); took < 7*time.Second || took > 20*time.Second {
			t.Errorf("a slot that is released sooner than its window ends is had after %v", took)
		}
	})
}

func TestCooldown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
		p := pools{workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust, Cooldown: time.Minute}), store}
		leases := p.fill(t, "p", 1)
		expect.NoError(t, "Release p", p.Release(t.Context(), "p", 0, leases[0].Token, leases[0].Now))
		_, err := p.Acquire(t.Context(), "p", of(1))
		expect.Error(t, "Acquire of a pool that cools", err, workerlease.ErrExhausted)
		expect.Equal(t, "wait for an id that cools", redisstore.RetryAfter(err), time.Minute)
		time.Sleep(31 * time.Second)
		ring, err := p.Ring(t.Context(), "p", 0, 2)
		expect.MustEqual(t, "error of Ring", err, nil)
		for id, slot := range ring.Slots {
			expect.Equal(t, fmt.Sprintf("state of worker id %d", id), slot.State, workerlease.SlotStateCooling)
		}
		time.Sleep(29 * time.Second)
		expect.Equal(t, "worker id that has cooled", p.acquire(t, "p", of(1)).WorkerID, 0)
	})
}

func TestTwoPoolsAreHeldApart(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		request := of(2)
		request.Identity = "orders-0"
		a := p.hold(t, "a", request, workerlease.HoldOptions{})
		b := p.hold(t, "b", request, workerlease.HoldOptions{})
		second := p.hold(t, "b", of(2), workerlease.HoldOptions{})
		expect.Equal(t, "worker ids held", []int{idOf(t, a), idOf(t, b), idOf(t, second)}, []int{0, 0, 1})
		p.forget(t, "a")
		time.Sleep(time.Minute)
		expect.Error(t, "hold of the pool that was forgotten", a.Err(), nil)
		expect.Error(t, "hold of the other pool", b.Err(), nil)
		expect.Error(t, "Release of the other pool", b.Release(t.Context(), time.Time{}), nil)
		expect.Error(t, "hold of the pool that was forgotten, after the Release", a.Err(), nil)
	})
}

// A deployment: as many processes as there are worker ids stop and start again, under their names.
func TestIdentitiesKeepTheirIDsOverRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		names := []string{"orders-0", "orders-1", "orders-2", "orders-3"}
		ids := map[string]int{}
		holders := map[string]*workerlease.Holder{}
		for round := range 10 {
			for i := range names {
				name := names[(i*(round+1)+round)%len(names)]
				if old := holders[name]; old != nil {
					expect.Error(t, "Release", old.Release(t.Context(), time.Now()), nil)
				}
				time.Sleep(time.Second)
				request := of(2)
				request.Identity = name
				holders[name] = p.hold(t, "p", request, workerlease.HoldOptions{Wait: time.Minute})
				id := idOf(t, holders[name])
				if was, known := ids[name]; known && was != id {
					t.Errorf("round %d: %s had %d and got %d", round, name, was, id)
				}
				ids[name] = id
			}
		}
	})
}

func TestHolderReacquiresAfterItsLeaseWasTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		var events []holder.Event
		var mu sync.Mutex
		h := p.hold(t, "p", of(2), workerlease.HoldOptions{Observe: func(e holder.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}})
		ctx := h.Context()
		lease, err := h.Current()
		expect.NoError(t, "Current", err)
		expect.NoError(t, "Release p", p.Release(t.Context(), "p", lease.WorkerID, lease.Token, lease.Now))
		<-ctx.Done()
		expect.Error(t, "cause of the context's end", context.Cause(ctx), workerlease.ErrLost)
		expect.Error(t, "cause of the context's end", context.Cause(ctx), redisstore.ErrLost)
		time.Sleep(time.Second)
		if id := idOf(t, h); id != 1 {
			t.Errorf("it holds %d", id)
		}
		mu.Lock()
		defer mu.Unlock()
		expect.MustEqual(t, fmt.Sprintf("number of events, which are %+v", events), len(events), 3)
		expect.Error(t, "the second event", events[1].Err, workerlease.ErrLost)
	})
}

func TestHolderIsDoneWhenThePoolHasBecomeAnother(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		request := of(2)
		request.WantLayout = true
		h := p.hold(t, "p", request, workerlease.HoldOptions{})
		p.forget(t, "p")
		expect.NoError(t, "Create p", p.Create(t.Context(), "p", of(3).Shape, time.Minute))
		<-h.Done()
		expect.Error(t, "end of the hold", h.Err(), workerlease.ErrOtherPool)
	})
}

func TestStartHoldsAsSoonAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
		p := workerlease.New(store, workerlease.Config{})
		began := time.Now()
		h := p.Start(t.Context(), "p", of(2), workerlease.HoldOptions{})
		if time.Since(began) > 0 || h.Err() == nil {
			t.Errorf("%v after %v", h.Err(), time.Since(began))
		}
		for h.Err() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < 31*time.Second || took > 40*time.Second {
			t.Errorf("an unknown pool was waited for for %v", took)
		}
		expect.Error(t, "Release", h.Release(t.Context(), time.Time{}), nil)
	})
}

// A new pool is waited for half a minute and a second: the log says so at once, not after it.
func TestWaitForANewPoolIsLoggedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Text
		store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
		p := workerlease.New(store, workerlease.Config{Logger: log.Logger()})
		began := time.Now()
		h := p.Start(t.Context(), "new", workerlease.Request{}, workerlease.HoldOptions{})
		synctest.Wait()
		expect.Equal(t, "time until the log says so", time.Since(began), 0)
		for _, says := range []string{"no worker id yet", "pool=new", "expected_in=31s"} {
			expect.Contains(t, "the log", log.String(), says)
		}
		time.Sleep(time.Minute)
		expect.Contains(t, "the log after the wait", log.String(), "a worker id is held")
		expect.Equal(t, "lines about the wait", strings.Count(log.String(), "no worker id yet"), 1)
		lease, err := h.Current()
		expect.Error(t, "Current", err, nil)
		expect.Equal(t, "layout of an empty shape", lease.Layout, snowflake.DefaultLayout)
		expect.Error(t, "Release", h.Release(t.Context(), time.Time{}), nil)
	})
}

func TestEmptyShapeIsTheDefault(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	p := workerlease.New(store, workerlease.Config{Pools: map[string]workerlease.Pin{"pinned": {}}})
	for _, name := range []string{"free", "pinned"} {
		expect.Error(t, "Create", p.Create(t.Context(), name, workerlease.Shape{}, 0), nil)
		lease, err := p.Acquire(t.Context(), name, workerlease.Request{WantLayout: true, WantEpoch: true})
		expect.Error(t, "Acquire", err, nil)
		expect.Equal(t, "layout", lease.Layout, snowflake.DefaultLayout)
		expect.Equal(t, "epoch", lease.Epoch.Equal(snowflake.DefaultEpoch), true)
	}
}
