package workerlease_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestMain(m *testing.M) {
	redisstore.LogTo(slog.New(slog.DiscardHandler)) // stores that are away are part of these tests
	goleak.VerifyTestMain(m)
}

var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// pools are those of a store, with what most tests ask of them.
type pools struct {
	*workerlease.Pools

	store *redisstore.Store
}

func TestPools(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		p := pools{workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), store}
		t.Run("grant the first worker id for a window from now", p.firstGrant)
		t.Run("grant worker ids in turn and are exhausted then", p.inTurn)
		t.Run("grant the slot that has been free longest", p.longestFree)
		t.Run("fix layout, epoch, datacenter and ttl by their first grant", p.layout)
		t.Run("refuse requests that are not valid", p.badRequest)
		t.Run("renew the window and never shorten it", p.renew)
		t.Run("have one ttl", p.oneTTL)
		t.Run("start the next window after the last stamp", p.nextWindow)
		t.Run("end a lease at its release", p.release)
		t.Run("take only the proof of the grant itself", p.proof)
		t.Run("refuse the proof of an old grant of the same slot", p.oldProof)
		t.Run("answer a repeated acquire with its grant", p.repeat)
		t.Run("show their ring page by page", p.ring)
		t.Run("refuse pages out of bounds", p.badPage)
		t.Run("do nothing for a context that has ended", p.ended)
		t.Run("give many at once an id each", p.manyAtOnce)
		t.Run("never give an id to two", p.churn)
		t.Run("can be declared new, once", p.create)
		t.Run("have datacenters", p.datacenter)
		t.Run("are listed by name", p.listed)
		t.Run("give an identity the id that it had", p.sticky)
		t.Run("wait before they trust an unknown pool", p.quarantine)
	})
}

// of asks for a lease of half a minute in a pool whose worker ids have this many bits.
func of(bits int) workerlease.Request {
	return workerlease.Request{TTL: 30 * time.Second, Shape: workerlease.Shape{Layout: fmt.Sprintf("41/%d/12", bits), Epoch: epoch}}
}

func (p pools) acquire(t testing.TB, pool string, request workerlease.Request) workerlease.Lease {
	t.Helper()
	lease, err := p.Acquire(t.Context(), pool, request)
	if err != nil {
		t.Fatalf("acquire %s: %v", pool, err)
	}
	return lease
}

// fill leases every slot of a pool.
func (p pools) fill(t testing.TB, pool string, bits int) (leases []workerlease.Lease) {
	t.Helper()
	for range 1 << bits {
		leases = append(leases, p.acquire(t, pool, of(bits)))
	}
	return leases
}

// wantIs checks the error of a call and its class.
func wantIs(t testing.TB, err, want, class error) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, class) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v of class %v", err, want, class)
	}
}

// wantOpen checks that a lease is still its holder's.
func (p pools) wantOpen(t testing.TB, lease workerlease.Lease) {
	t.Helper()
	if _, err := p.Renew(t.Context(), lease, 0); err != nil {
		t.Errorf("worker id %d of %s: %v", lease.WorkerID, lease.Pool, err)
	}
}

func (p pools) wantLost(t testing.TB, pool string, workerID int, token string) {
	t.Helper()
	_, err := p.Renew(t.Context(), workerlease.Lease{Pool: pool, WorkerID: workerID, Token: token}, 0)
	wantIs(t, err, workerlease.ErrLost, redisstore.ErrLost)
	wantIs(t, p.Release(t.Context(), pool, workerID, token, time.Time{}), workerlease.ErrLost, redisstore.ErrLost)
}

func (p pools) firstGrant(t *testing.T) {
	request := of(2)
	request.TTL, request.Identity = 0, "orders-0"
	lease := p.acquire(t, "first", request)
	expect.Equal(t, "pool", lease.Pool, "first")
	expect.Equal(t, "first worker id", lease.WorkerID, 0)
	if lease.Fence < 1 || lease.Fence >= 1<<53 || lease.Token == "" {
		t.Errorf("first lease: got %+v, want a fence from 1 to 2^53 and a token", lease)
	}
	expect.Equal(t, "TTL by default", lease.TTL, workerlease.DefaultTTL)
	expect.Equal(t, "layout", lease.Layout, "41/2/12")
	expect.Equal(t, "epoch", lease.Epoch, epoch)
	if !lease.NotBefore.Equal(lease.Now) || lease.NotAfter.Sub(lease.NotBefore) != lease.TTL || lease.Now.Location() != time.UTC {
		t.Errorf("the window is %v to %v at %v", lease.NotBefore, lease.NotAfter, lease.Now)
	}
}

func (p pools) inTurn(t *testing.T) {
	fence := int64(0)
	for id := range 4 {
		lease := p.acquire(t, "turn", of(2))
		if lease.WorkerID != id || lease.Fence <= fence {
			t.Errorf("%+v after fence %d", lease, fence)
		}
		fence = lease.Fence
	}
	for range 2 {
		_, err := p.Acquire(t.Context(), "turn", of(2))
		wantIs(t, err, workerlease.ErrExhausted, redisstore.ErrRefused)
		if wait := redisstore.RetryAfter(err); wait <= 0 || wait > 30*time.Second || !strings.Contains(err.Error(), wait.String()) {
			t.Errorf("Acquire of a pool in use: got error %v, want one that tells its wait of up to 30s", err)
		}
	}
	if other := p.acquire(t, "another-turn", of(2)); other.WorkerID != 0 {
		t.Errorf("pools are not apart: %+v", other)
	}
}

func (p pools) longestFree(t *testing.T) {
	leases := p.fill(t, "longest", 2)
	for _, id := range []int{2, 0, 3} {
		expect.NoError(t, "Release longest", p.Release(t.Context(), "longest", id, leases[id].Token, leases[id].NotBefore))
		time.Sleep(5 * time.Millisecond) // the server's clock counts milliseconds
	}
	fence := leases[3].Fence
	for _, id := range []int{2, 0, 3} {
		lease := p.acquire(t, "longest", of(2))
		if lease.WorkerID != id || lease.Fence <= fence {
			t.Errorf("%+v, want worker id %d and more than %d", lease, id, fence)
		}
		if lease.NotBefore.Before(leases[id].NotBefore) || !lease.NotBefore.Equal(lease.Now) {
			t.Errorf("the window begins at %v, now is %v", lease.NotBefore, lease.Now)
		}
		fence = lease.Fence
	}
}

func (p pools) layout(t *testing.T) {
	p.acquire(t, "shaped", of(2))
	other := of(3)
	other.Shape.Epoch = epoch.AddDate(1, 0, 0)
	own := p.acquire(t, "shaped", other)
	if own.Layout != "41/2/12" || !own.Epoch.Equal(epoch) || own.WorkerID != 1 {
		t.Errorf("a request that insists on nothing gets the pool's own: %+v", own)
	}
	for _, insist := range []workerlease.Request{
		{Shape: other.Shape, WantLayout: true},
		{Shape: other.Shape, WantEpoch: true},
		{Shape: other.Shape, WantLayout: true, WantEpoch: true},
		{Shape: workerlease.Shape{Layout: "41/2/12", Epoch: epoch.Add(time.Millisecond)}, WantLayout: true, WantEpoch: true},
		{Shape: workerlease.Shape{Layout: "41/2/12@s", Epoch: epoch}, WantLayout: true, WantEpoch: true},
		{Shape: workerlease.Shape{Layout: "41/5/5/12", Epoch: epoch, Datacenter: 1}, WantDatacenter: true},
		{Shape: of(2).Shape, TTL: 30*time.Second + time.Millisecond},
		{Shape: of(2).Shape, TTL: workerlease.MaxTTL},
	} {
		_, err := p.Acquire(t.Context(), "shaped", insist)
		wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
		var has *workerlease.OtherPoolError
		if !errors.As(err, &has) {
			t.Fatalf("Acquire of another pool than there is: got error %v, want an OtherPoolError", err)
		}
		expect.Contains(t, "the refusal", err.Error(), "41/2/12")
		expect.Equal(t, "layout that the refusal tells", has.Layout, "41/2/12")
		expect.Equal(t, "epoch that the refusal tells", has.Epoch, epoch)
		expect.Equal(t, "datacenter that the refusal tells", has.Datacenter, 0)
		expect.Equal(t, "TTL that the refusal tells", has.TTL, 30*time.Second)
	}
	same := of(2)
	same.WantLayout, same.WantEpoch, same.WantDatacenter = true, true, true
	if lease := p.acquire(t, "shaped", same); lease.WorkerID != 2 {
		t.Errorf("a refused request took a slot: %+v", lease)
	}
}

func (p pools) badRequest(t *testing.T) {
	for name, change := range map[string]func(*workerlease.Request){
		"short":      func(r *workerlease.Request) { r.TTL = workerlease.MinTTL - 1 },
		"negative":   func(r *workerlease.Request) { r.TTL = -time.Second },
		"long":       func(r *workerlease.Request) { r.TTL = workerlease.MaxTTL + 1 },
		"spaced":     func(r *workerlease.Request) { r.Identity = "a b" },
		"long name":  func(r *workerlease.Request) { r.Identity = strings.Repeat("i", 201) },
		"newline":    func(r *workerlease.Request) { r.Identity = "a\n" },
		"too wide":   func(r *workerlease.Request) { r.Shape.Layout = "28/21/13@s" },
		"below zero": func(r *workerlease.Request) { r.Shape.Datacenter = -1 },
		"far away":   func(r *workerlease.Request) { r.Shape.Datacenter = 1 },
		"a second":   func(r *workerlease.Request) { r.TTL, r.Shape.Layout = 2999*time.Millisecond, "32/10/21@s" },
		"ack":        func(r *workerlease.Request) { r.Ack = -1 },
		"much ack":   func(r *workerlease.Request) { r.Ack = 101 },
	} {
		request := of(2)
		change(&request)
		_, err := p.Acquire(t.Context(), "refused", request)
		wantIs(t, err, workerlease.ErrInvalid, redisstore.ErrRefused)
		// which does not help
		_, held := p.Hold(t.Context(), "refused", request, workerlease.HoldOptions{Wait: time.Hour})
		if wantIs(t, held, workerlease.ErrInvalid, redisstore.ErrRefused); t.Failed() {
			t.Fatalf("a request that is refused: %s", name)
		}
	}
	_, err := p.Ring(t.Context(), "refused", 0, 1)
	wantIs(t, err, workerlease.ErrNotFound, redisstore.ErrRefused)
}

func (p pools) ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Acquire(ctx, "ended", of(2))
	wantIs(t, err, redisstore.ErrUnavailable, context.Canceled)
	_, err = p.Ring(t.Context(), "ended", 0, 1)
	wantIs(t, err, workerlease.ErrNotFound, redisstore.ErrRefused)

	lease := p.acquire(t, "ended", of(2))
	_, err = p.Renew(ctx, lease, 0)
	wantIs(t, err, redisstore.ErrUnavailable, context.Canceled)
	wantIs(t, p.Release(ctx, "ended", 0, lease.Token, time.Time{}), redisstore.ErrUnavailable, context.Canceled)
	wantIs(t, p.Create(ctx, "not-created", of(2).Shape, 0), redisstore.ErrUnavailable, context.Canceled)
	p.wantOpen(t, lease)
}
