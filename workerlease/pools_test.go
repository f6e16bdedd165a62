package workerlease_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestConfig(t *testing.T) {
	for _, good := range []workerlease.Config{
		{}, {NewPools: workerlease.NewPoolsWait}, {NewPools: workerlease.NewPoolsTrust}, {Skew: time.Nanosecond}, {Skew: time.Minute}, {Cooldown: workerlease.MaxTTL},
		{LongestTTL: workerlease.MinTTL}, {LongestTTL: workerlease.MaxTTL},
		{LongestTTL: 2 * time.Second, Pools: map[string]workerlease.Pin{"slow": {Shape: workerlease.Shape{Layout: "32/10/21@s", Epoch: epoch}, TTL: 3 * time.Second}}},
	} {
		expect.Error(t, fmt.Sprintf("Check of %+v", good), good.Check(), nil)
	}
	for _, bad := range []workerlease.Config{
		{NewPools: "perhaps"}, {Skew: -time.Second}, {Skew: time.Minute + 1}, {Cooldown: -1}, {Cooldown: workerlease.MaxTTL + 1},
		{LongestTTL: -time.Second}, {LongestTTL: workerlease.MinTTL - 1}, {LongestTTL: workerlease.MaxTTL + 1},
		{LongestTTL: 2 * time.Second, Pools: map[string]workerlease.Pin{"slow": {Shape: workerlease.Shape{Layout: "32/10/21@s", Epoch: epoch}}}},
		{Pools: map[string]workerlease.Pin{"part": {Shape: workerlease.Shape{Layout: "41/10/12", Epoch: epoch.Add(time.Microsecond)}}}},
	} {
		if err := bad.Check(); err == nil {
			t.Errorf("%+v: no fault was found", bad)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: New took it", bad)
				}
			}()
			workerlease.New(nil, bad)
		}()
	}
}

// wary are the same pools for clients that wait before they trust one that is unknown, as long as
// their longest TTL says.
func (p pools) wary(longest time.Duration) pools {
	return pools{workerlease.New(p.store, workerlease.Config{Skew: 100 * time.Millisecond, LongestTTL: longest}), p.store}
}

func (p pools) create(t *testing.T) {
	shape := workerlease.Shape{Layout: "41/5/5/12", Datacenter: 7, Epoch: epoch}
	expect.NoError(t, "Create declared", p.Create(t.Context(), "declared", shape, time.Minute))
	ring, err := p.Ring(t.Context(), "declared", 0, 10)
	expect.Error(t, "Ring", err, nil)
	ring.Now, ring.Slots = time.Time{}, nil
	expect.Equal(t, "Ring of a declared pool", ring, workerlease.Ring{Layout: "41/5/5/12", Epoch: epoch, Datacenter: 7, Bits: 5, TTL: time.Minute})
	again := p.Create(t.Context(), "declared", of(2).Shape, 0)
	wantIs(t, again, workerlease.ErrExists, redisstore.ErrRefused)
	has, ok := errors.AsType[*workerlease.OtherPoolError](again)
	if !ok || errors.Is(again, workerlease.ErrOtherPool) {
		t.Fatalf("Create of a pool that exists: got error %v, want an OtherPoolError that is not ErrOtherPool", again)
	}
	expect.Equal(t, "layout that the refusal tells", has.Layout, "41/5/5/12")
	expect.Equal(t, "datacenter that the refusal tells", has.Datacenter, 7)
	expect.Equal(t, "TTL that the refusal tells", has.TTL, time.Minute)
	lease, err := p.wary(time.Minute).Acquire(t.Context(), "declared", workerlease.Request{Shape: of(2).Shape})
	if err != nil || lease.Layout != "41/5/5/12" || lease.Datacenter != 7 || lease.TTL != time.Minute {
		t.Errorf("a pool that was declared new waits for nothing and is what was declared: %+v %v", lease, err)
	}
	p.acquire(t, "granted-from", of(2))
	wantIs(t, p.Create(t.Context(), "granted-from", of(2).Shape, 30*time.Second), workerlease.ErrExists, redisstore.ErrRefused)
	for _, bad := range []workerlease.Shape{{Layout: "x"}, {Layout: "28/21/13@s"}, {Layout: "41/5/5/12", Datacenter: -1}, {Layout: "41/5/5/12", Datacenter: 32}, {Layout: "41/10/12", Datacenter: 1}} {
		wantIs(t, p.Create(t.Context(), "bad", bad, 0), workerlease.ErrInvalid, redisstore.ErrRefused)
	}
	for _, ttl := range []time.Duration{-1, 1, workerlease.MaxTTL + 1} {
		wantIs(t, p.Create(t.Context(), "bad", of(2).Shape, ttl), workerlease.ErrInvalid, redisstore.ErrRefused)
	}
	for _, pool := range []string{"", "a b", "a}", strings.Repeat("a", 201)} {
		_, acquired := p.Acquire(t.Context(), pool, of(2))
		_, renewed := p.Renew(t.Context(), workerlease.Lease{Pool: pool}, 0)
		for what, err := range map[string]error{"Create": p.Create(t.Context(), pool, of(2).Shape, 0), "Acquire": acquired, "Renew": renewed} {
			expect.Error(t, fmt.Sprintf("%s of pool %q", what, pool), err, workerlease.ErrInvalid)
		}
	}
}

func (p pools) datacenter(t *testing.T) {
	request := workerlease.Request{TTL: 30 * time.Second, Shape: workerlease.Shape{Layout: "41/5/5/12", Datacenter: 3, Epoch: epoch}, WantDatacenter: true}
	lease := p.acquire(t, "far", request)
	expect.Equal(t, "datacenter of the first lease", lease.Datacenter, 3)
	expect.Equal(t, "worker id of the first lease", lease.WorkerID, 0)
	request.Shape.Datacenter = 4
	_, err := p.Acquire(t.Context(), "far", request)
	wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
	request.WantDatacenter = false
	lease = p.acquire(t, "far", request)
	expect.Equal(t, "datacenter of a lease that wants none", lease.Datacenter, 3)
	expect.Equal(t, "worker id of the second lease", lease.WorkerID, 1)
}

func (p pools) listed(t *testing.T) {
	var want []string
	for i := range 25 {
		name := fmt.Sprintf("listed-%02d", i)
		if want = append(want, name); i%2 == 0 {
			p.acquire(t, name, of(2))
		} else if err := p.Create(t.Context(), name, of(2).Shape, 0); err != nil {
			t.Fatalf("Create of a pool: %v", err)
		}
	}
	p.acquire(t, "listen", of(2))
	p.acquire(t, "liste", of(2))
	for n := 1; n <= 30; n += 4 {
		var got []string
		for next, more := "", true; more; more = next != "" {
			page, after, err := p.List(t.Context(), "listed-", next, n)
			if err != nil || len(page) > n {
				t.Fatalf("%d names: %v %v", n, page, err)
			}
			got, next = append(got, page...), after
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v", n, got)
		}
	}
	all, _, err := p.List(t.Context(), "", "", 1000)
	if err != nil || !slices.IsSorted(all) || !slices.Contains(all, "liste") || len(all) < 27 {
		t.Errorf("List: got %v, %v, want 27 or more in order, liste among them", all, err)
	}
	for _, n := range []int{-1, 0, 1001} {
		_, _, err := p.List(t.Context(), "", "", n)
		wantIs(t, err, workerlease.ErrInvalid, redisstore.ErrRefused)
	}
	// A list that was lost comes back as its pools are looked at.
	p.lose(t, onstore.Key(p.store, "workers", "names"))
	if _, err := p.Ring(t.Context(), "listed-07", 0, 1); err != nil {
		t.Fatalf("Ring listed-07: got error %v, want none", err)
	}
	all, _, err = p.List(t.Context(), "", "", 10)
	expect.Error(t, "Names after the list's loss", err, nil)
	expect.Equal(t, "Names after the list's loss", all, []string{"listed-07"})
}

func (p pools) sticky(t *testing.T) {
	request := of(3)
	var before []workerlease.Lease
	for _, identity := range []string{"orders-0", "orders-1", "orders-2"} {
		request.Identity = identity
		before = append(before, p.acquire(t, "sticky", request))
	}
	for _, i := range []int{2, 0, 1} { // they start again in another order
		expect.NoError(t, "Release sticky", p.Release(t.Context(), "sticky", before[i].WorkerID, before[i].Token, before[i].Now))
	}
	for _, i := range []int{1, 2, 0} {
		request.Identity = before[i].Identity
		again := p.acquire(t, "sticky", request)
		expect.Equal(t, "worker id of the same identity", again.WorkerID, before[i].WorkerID)
		expect.Equal(t, "identity of the lease", again.Identity, request.Identity)
		if again.Token == before[i].Token || again.Fence <= before[i].Fence {
			t.Errorf("lease of the same identity: got %+v, want another token and a greater fence than %+v", again, before[i])
		}
	}
	// Its id is in use, so another process under the same name gets another.
	expect.Equal(t, "worker id of a second process of the same identity", p.acquire(t, "sticky", request).WorkerID, 3)
}

// quarantine: an unknown pool may be one whose state was lost.
func (p pools) quarantine(t *testing.T) {
	w, request := p.wary(2*time.Second), of(2)
	request.TTL = 2 * time.Second
	_, err := w.Acquire(t.Context(), "unknown", request)
	wantIs(t, err, workerlease.ErrQuarantined, redisstore.ErrRefused)
	if wait := redisstore.RetryAfter(err); wait <= 0 || wait > 2100*time.Millisecond || !strings.Contains(err.Error(), wait.String()) {
		t.Fatalf("Acquire of an unknown pool: got error %v, want one that tells its wait of up to 2.1s", err)
	}
	// it is known by now, and trust is for those that are not
	_, err = p.Acquire(t.Context(), "unknown", request)
	wantIs(t, err, workerlease.ErrQuarantined, redisstore.ErrRefused)
	h, err := w.Hold(t.Context(), "unknown", request, workerlease.HoldOptions{Wait: patience})
	expect.NoError(t, "Hold unknown", err)
	lease, err := h.Current()
	expect.Error(t, "Current after the quarantine", err, nil)
	expect.Equal(t, "worker id after the quarantine", lease.WorkerID, 0)
	expect.Error(t, "Release", h.Release(t.Context(), time.Time{}), nil)
	w = p.wary(workerlease.DefaultTTL)
	_, err = w.Acquire(t.Context(), "unknown-too", of(2))
	wantIs(t, err, workerlease.ErrQuarantined, redisstore.ErrRefused)
	expect.Error(t, "Create unknown-too", p.Create(t.Context(), "unknown-too", of(2).Shape, 30*time.Second), nil)
	if lease := w.acquire(t, "unknown-too", of(2)); lease.WorkerID != 0 {
		t.Errorf("a pool that is declared new during its quarantine: %+v", lease)
	}
}

// A head that is gone, or that cannot be read, leaves a pool that is there: nothing was done, and
// nothing about that is unknown.
func TestDeclaringAPoolThatHasLostItsHeadIsRefused(t *testing.T) {
	allowing(t, time.Minute, func(t *testing.T, p pools) {
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "p", of(2).Shape, 0), nil)
		p.acquire(t, "p", of(2))
		raw(t, p.store, "redis.call('HDEL', KEYS[1], 'pool') return {'ok'}", []string{onstore.Key(p.store, "worker", "p")})
		for name, declare := range map[string]func() error{
			"Create":  func() error { return p.Create(t.Context(), "p", of(2).Shape, 0) },
			"Replace": func() error { return p.Replace(t.Context(), "p", of(2).Shape, 0) },
		} {
			err := declare()
			wantIs(t, err, workerlease.ErrExists, redisstore.ErrRefused)
			expect.Contains(t, name, err.Error(), "lease a worker id of it")
		}
	})
}

// A pool that Redis knows is not new, and declaring it so is refused: its quarantine does not send
// people there.
func TestQuarantineSpeaksOfNewPoolsOnlyWhereThePoolMayBeNew(t *testing.T) {
	allowing(t, time.Minute, func(t *testing.T, p pools) {
		refusal := func() string {
			_, err := p.Acquire(t.Context(), "p", of(2))
			wantIs(t, err, workerlease.ErrQuarantined, redisstore.ErrRefused)
			return err.Error()
		}
		expect.Contains(t, "refusal of an unknown pool", refusal(), "the pool is new to this Redis", "coatcheck worker create p")
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "p", of(2).Shape, 0), nil)
		p.acquire(t, "p", of(2))
		p.strike(t, "0")
		if text := refusal(); strings.Contains(text, "coatcheck worker create") {
			t.Errorf("refusal of a known pool: got %q, want nothing of a declaration", text)
		}
	})
}
