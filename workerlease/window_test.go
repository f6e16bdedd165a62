package workerlease_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// inBubble runs a test on the embedded store with a clock of its own, which stands while any
// goroutine runs.
func inBubble(t *testing.T, test func(*testing.T, pools)) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
		test(t, pools{workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), store})
	})
}

func TestLeaseEndsWithItsWindowAndIsNeverRevived(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		lease := p.acquire(t, "p", of(2))
		time.Sleep(lease.TTL - time.Millisecond)
		state := func() workerlease.SlotState {
			t.Helper()
			ring, err := p.Ring(t.Context(), "p", 0, 1)
			expect.NoError(t, "Ring p", err)
			return ring.Slots[0].State
		}
		if got := state(); got != workerlease.SlotStateHeld {
			t.Errorf("a millisecond before its end it is %s", got)
		}
		time.Sleep(time.Millisecond)
		if got := state(); got != workerlease.SlotStateFree {
			t.Errorf("at its end it is %s", got)
		}
		for range 3 {
			p.wantLost(t, "p", lease.WorkerID, lease.Token) // although the slot was not taken
			time.Sleep(time.Hour)
		}
	})
}

func TestRenewalJustBeforeTheEndKeepsTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		lease := p.acquire(t, "p", of(2))
		for range 100 {
			time.Sleep(lease.TTL - time.Millisecond)
			renewed, err := p.Renew(t.Context(), lease, 0)
			expect.MustEqual(t, "error of Renew", err, nil)
			expect.MustEqual(t, "lease after Renew", renewed.NotAfter.Sub(renewed.Now), lease.TTL)
		}
		time.Sleep(lease.TTL)
		p.wantLost(t, "p", lease.WorkerID, lease.Token)
	})
}

func TestExhaustedPoolTellsWhenASlotIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		first := p.acquire(t, "p", of(1))
		time.Sleep(10 * time.Second)
		second := p.acquire(t, "p", of(1))
		_, err := p.Acquire(t.Context(), "p", of(1))
		expect.Error(t, "Acquire of a pool in use", err, workerlease.ErrExhausted)
		expect.MustEqual(t, "wait for the first lease's end", redisstore.RetryAfter(err), 20*time.Second)
		time.Sleep(20*time.Second - time.Millisecond)
		_, err = p.Acquire(t.Context(), "p", of(1))
		expect.Error(t, "Acquire of a pool in use", err, workerlease.ErrExhausted)
		expect.MustEqual(t, "wait just before the first lease's end", redisstore.RetryAfter(err), time.Millisecond)
		time.Sleep(time.Millisecond)
		third := p.acquire(t, "p", of(1))
		if third.WorkerID != first.WorkerID || third.NotBefore.Before(first.NotAfter) {
			t.Errorf("%+v after %+v", third, first)
		}
		p.wantLost(t, "p", first.WorkerID, first.Token)
		p.wantOpen(t, second)
		p.wantOpen(t, third)
	})
}

// Whatever is granted, renewed, released or left to end: the windows of one worker id never
// overlap, and its fences rise.
func TestWindowsOfOneWorkerIDNeverOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		type held struct {
			lease workerlease.Lease
			until time.Time
		}
		latest := map[int]held{}
		fence := int64(0)
		for i := range 200 {
			lease, err := p.Acquire(t.Context(), "p", of(2))
			if errors.Is(err, workerlease.ErrExhausted) {
				time.Sleep(redisstore.RetryAfter(err))
				continue
			}
			expect.NoError(t, "Acquire in a row", err)
			before, known := latest[lease.WorkerID]
			if known && lease.NotBefore.Before(before.until) {
				t.Fatalf("%+v begins before %v, the end of %+v", lease, before.until, before.lease)
			}
			if lease.Fence <= fence {
				t.Fatalf("fence %d after %d", lease.Fence, fence)
			}
			fence = lease.Fence
			until := lease.NotAfter
			switch i % 4 {
			case 0:
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				renewed, err := p.Renew(t.Context(), lease, 0)
				expect.NoError(t, "Renew", err)
				until = renewed.NotAfter
			case 1:
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				until = time.Now().Add(time.Duration(i%7) * 100 * time.Millisecond)
				expect.NoError(t, "Release p", p.Release(t.Context(), "p", lease.WorkerID, lease.Token, until))
			case 2:
				time.Sleep(time.Duration(i) * time.Millisecond)
			}
			latest[lease.WorkerID] = held{lease, until}
		}
		if len(latest) != 4 {
			t.Errorf("%d worker ids were used", len(latest))
		}
	})
}

func TestIdleRingIsHandedOutInTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		for i := range 20 {
			lease := p.acquire(t, "p", of(2))
			if lease.WorkerID != i%4 {
				t.Errorf("grant %d: worker id %d", i, lease.WorkerID)
			}
			time.Sleep(lease.TTL)
		}
	})
}
