package workerlease_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p pools) renew(t *testing.T) {
	lease := p.acquire(t, "renewed", of(2))
	for range 3 {
		longer, err := p.Renew(t.Context(), lease, 0)
		if err != nil || longer.NotAfter.Before(lease.NotAfter) || longer.NotAfter.Before(longer.Now.Add(longer.TTL)) || longer.Now.Before(lease.Now) {
			t.Errorf("%+v %v after %+v", longer, err, lease)
		}
		lease.NotAfter, lease.Now = longer.NotAfter, longer.Now
		if longer != lease {
			t.Errorf("%+v, want %+v", longer, lease)
		}
	}
	bare, err := p.Renew(t.Context(), workerlease.Lease{Pool: lease.Pool, WorkerID: lease.WorkerID, Token: lease.Token}, 0)
	if err != nil || bare.NotAfter.Before(lease.NotAfter) || bare.TTL != lease.TTL {
		t.Errorf("pool, worker id and token alone: %+v %v", bare, err)
	}
	ring, err := p.Ring(t.Context(), "renewed", 0, 1)
	expect.MustEqual(t, "error of Ring", err, nil)
	expect.Equal(t, "NotAfter in the ring", ring.Slots[0].NotAfter, bare.NotAfter)
	expect.Equal(t, "NotBefore in the ring", ring.Slots[0].NotBefore, lease.NotBefore)
	expect.Equal(t, "fence in the ring", ring.Slots[0].Fence, lease.Fence)
}

// A pool has one TTL: how long a quarantine lasts must not depend on who notices a loss.
func (p pools) oneTTL(t *testing.T) {
	request := of(2)
	request.TTL = 0
	lease := p.acquire(t, "ttl", request)
	expect.Equal(t, "TTL by default", lease.TTL, workerlease.DefaultTTL)
	for _, ttl := range []time.Duration{-1, 1, workerlease.MinTTL - 1, workerlease.MaxTTL + 1} {
		other := lease
		other.TTL = ttl
		_, err := p.Renew(t.Context(), other, 0)
		wantIs(t, err, workerlease.ErrInvalid, redisstore.ErrRefused)
	}
	for _, ttl := range []time.Duration{workerlease.MinTTL, time.Minute, workerlease.MaxTTL} {
		other := lease
		other.TTL = ttl
		_, err := p.Renew(t.Context(), other, 0)
		wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
		has, ok := errors.AsType[*workerlease.OtherPoolError](err)
		if !ok {
			t.Fatalf("Renew with a TTL of %v: got error %v, want an OtherPoolError", ttl, err)
		}
		expect.Equal(t, "TTL that the refusal tells", has.TTL, lease.TTL)
	}
	request.TTL = workerlease.MaxTTL
	long := p.acquire(t, "long", request)
	expect.Equal(t, "longest TTL", long.TTL, workerlease.MaxTTL)
	expect.Equal(t, "longest window", long.NotAfter.Sub(long.NotBefore), workerlease.MaxTTL)
	request.TTL = 0
	if long := p.acquire(t, "long", request); long.TTL != workerlease.MaxTTL {
		t.Errorf("who asks for none gets the pool's: %+v", long)
	}
	p.wantOpen(t, lease)
}

// nextWindow checks from when on the next holder of a released id may stamp.
func (p pools) nextWindow(t *testing.T) {
	for name, row := range map[string]struct {
		used func(lease workerlease.Lease) time.Time
		want func(lease, next workerlease.Lease) bool
	}{
		"unused":      {func(l workerlease.Lease) time.Time { return l.NotBefore }, func(_, next workerlease.Lease) bool { return next.NotBefore.Equal(next.Now) }},
		"before that": {func(l workerlease.Lease) time.Time { return l.NotBefore.Add(-time.Hour) }, func(_, next workerlease.Lease) bool { return next.NotBefore.Equal(next.Now) }},
		"ahead":       {func(l workerlease.Lease) time.Time { return l.Now.Add(20 * time.Second) }, func(l, next workerlease.Lease) bool { return next.NotBefore.Equal(l.Now.Add(20 * time.Second)) }},
		"within a millisecond": {
			func(l workerlease.Lease) time.Time { return l.Now.Add(20*time.Second + 1) },
			func(l, next workerlease.Lease) bool {
				return next.NotBefore.Equal(l.Now.Add(20*time.Second + time.Millisecond))
			},
		},
		"all":      {func(l workerlease.Lease) time.Time { return l.NotAfter }, func(l, next workerlease.Lease) bool { return next.NotBefore.Equal(l.NotAfter) }},
		"too much": {func(l workerlease.Lease) time.Time { return l.NotAfter.Add(time.Hour) }, func(l, next workerlease.Lease) bool { return next.NotBefore.Equal(l.NotAfter) }},
		"unsaid": {
			func(workerlease.Lease) time.Time { return time.Time{} },
			func(l, next workerlease.Lease) bool {
				ahead := next.NotBefore.Sub(l.Now) // two seconds, and the skew
				return ahead >= 3*time.Second && next.NotBefore.Before(next.Now.Add(3*time.Second+1))
			},
		},
	} {
		pool := "next-" + strings.ReplaceAll(name, " ", "-")
		leases := p.fill(t, pool, 1)
		expect.NoError(t, "Release", p.Release(t.Context(), pool, 1, leases[1].Token, row.used(leases[1])))
		next := p.acquire(t, pool, of(1))
		if next.WorkerID != 1 || !row.want(leases[1], next) || next.NotAfter.Before(next.Now.Add(next.TTL)) {
			t.Errorf("%s: %+v after %+v", name, next, leases[1])
		}
		p.wantOpen(t, next)
	}
}

func (p pools) release(t *testing.T) {
	leases := p.fill(t, "released", 1)
	for range 3 { // a repeat is harmless
		expect.NoError(t, "Release released", p.Release(t.Context(), "released", 1, leases[1].Token, leases[1].Now))
	}
	_, err := p.Renew(t.Context(), leases[1], 0)
	wantIs(t, err, workerlease.ErrLost, redisstore.ErrLost)
	p.wantOpen(t, leases[0])
	next := p.acquire(t, "released", of(1))
	expect.Equal(t, "worker id that was released", next.WorkerID, 1)
	if next.Fence <= leases[1].Fence {
		t.Errorf("fence of a worker id that was released: got %d, want more than %d", next.Fence, leases[1].Fence)
	}
	_, err = p.Renew(t.Context(), leases[1], 0) // with all that it was
	wantIs(t, err, workerlease.ErrLost, redisstore.ErrLost)
	p.wantLost(t, "released", 1, leases[1].Token)
	p.wantOpen(t, next)
}

func (p pools) proof(t *testing.T) {
	lease, second := p.acquire(t, "proof", of(2)), p.acquire(t, "proof", of(2))
	other := p.acquire(t, "other-proof", of(2))
	nonce, from, _ := strings.Cut(lease.Token, ".")
	for _, token := range []string{
		"", "x", second.Token, other.Token, nonce, nonce + ".", nonce + ".0", nonce + "." + from + "0", nonce + ".0" + from, from + "." + nonce, lease.Token + " ", " " + lease.Token,
		lease.Token + "\n", lease.Token + "x", strings.ToUpper(nonce) + "." + from, nonce + ".99999999999999999", strings.Repeat("A", 22) + "." + from, strings.Repeat("x", 10_000),
	} {
		p.wantLost(t, "proof", 0, token)
	}
	for _, id := range []int{-1, 1, 2, 3, 4, 1 << 20, 1 << 40} {
		p.wantLost(t, "proof", id, lease.Token)
	}
	p.wantLost(t, "other-proof", 0, lease.Token)
	p.wantLost(t, "no-such-pool", 0, lease.Token)
	p.wantOpen(t, lease)
	p.wantOpen(t, second)
	p.wantOpen(t, other)
}

func (p pools) oldProof(t *testing.T) {
	old := p.fill(t, "old", 1)[0]
	for range 3 {
		expect.NoError(t, "Release old", p.Release(t.Context(), "old", 0, old.Token, old.Now))
		next := p.acquire(t, "old", of(1))
		if next.WorkerID != 0 || next.Token == old.Token {
			t.Fatalf("%+v after %+v", next, old)
		}
		p.wantLost(t, "old", 0, old.Token)
		p.wantOpen(t, next)
		old = next
	}
}

func (p pools) repeat(t *testing.T) {
	const nonce = "AAAAAAAAAAAAAAAAAAAAAA"
	first, err := p.AcquireAs(t.Context(), "repeat", of(1), nonce)
	expect.NoError(t, "AcquireAs repeat", err)
	p.acquire(t, "repeat", of(1)) // which fills it
	for range 3 {
		again, err := p.AcquireAs(t.Context(), "repeat", of(1), nonce)
		again.Now = first.Now
		if err != nil || again != first {
			t.Errorf("%+v %v, want %+v", again, err, first)
		}
	}
	p.wantOpen(t, first)
	ring, err := p.Ring(t.Context(), "repeat", 0, 10)
	expect.Error(t, "Ring", err, nil)
	expect.Equal(t, "worker ids in use", ring.Used, 2)
}

func (p pools) ring(t *testing.T) {
	_, err := p.Ring(t.Context(), "ring", 0, 10)
	wantIs(t, err, workerlease.ErrNotFound, redisstore.ErrRefused)
	var leases []workerlease.Lease
	for i := range 10 {
		request := of(4)
		request.Identity = []string{"", "orders-1", strings.Repeat("i", 200), "a:b@c~d._-"}[i%4]
		leases = append(leases, p.acquire(t, "ring", request))
	}
	expect.NoError(t, "Release ring", p.Release(t.Context(), "ring", 3, leases[3].Token, leases[3].Now))
	for _, page := range []struct{ from, n, slots int }{
		{0, 1, 1}, {0, 3, 3}, {3, 3, 3}, {9, 1, 1}, {0, 10, 10}, {0, workerlease.MaxSlots, 16}, {8, 100, 8}, {10, 1, 1}, {15, 1, 1}, {15, 2, 1}, {16, 1, 0}, {1<<workerlease.MaxBits - 1, workerlease.MaxSlots, 0},
	} {
		ring, err := p.Ring(t.Context(), "ring", page.from, page.n)
		if err != nil || len(ring.Slots) != page.slots {
			t.Errorf("%+v: %d slots, %v", page, len(ring.Slots), err)
			continue
		}
		asked := fmt.Sprintf("ring from %d on", page.from)
		if ring.Now.Before(leases[9].Now) {
			t.Errorf("%s: got the time %v, want one from %v on", asked, ring.Now, leases[9].Now)
		}
		about := ring
		about.Now, about.Slots = time.Time{}, nil
		expect.Equal(t, asked, about, workerlease.Ring{Layout: "41/4/12", Epoch: epoch, Bits: 4, TTL: 30 * time.Second, Used: 10, Held: 9})
		for i, slot := range ring.Slots {
			if id := page.from + i; id >= len(leases) {
				if slot != (workerlease.Slot{WorkerID: id, State: workerlease.SlotStateFree}) {
					t.Errorf("never leased, and %+v", slot)
				}
				continue
			}
			lease := leases[page.from+i]
			want := workerlease.Slot{
				WorkerID: lease.WorkerID, State: workerlease.SlotStateHeld, Identity: []string{"", "orders-1", strings.Repeat("i", 200), "a:b@c~d._-"}[lease.WorkerID%4],
				Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: lease.NotAfter,
			}
			if lease.WorkerID == 3 {
				// its release ended the window
				want.State, want.NotAfter = workerlease.SlotStateFree, slot.NotAfter
			}
			if slot != want || slot.NotAfter.After(lease.NotAfter) {
				t.Errorf("%+v, want %+v", slot, want)
			}
		}
	}
}

func (p pools) badPage(t *testing.T) {
	p.acquire(t, "page", of(1))
	for _, page := range [][2]int{{-1, 1}, {1 << workerlease.MaxBits, 1}, {0, 0}, {0, -1}, {0, workerlease.MaxSlots + 1}, {1 << 62, 1 << 62}} {
		_, err := p.Ring(t.Context(), "page", page[0], page[1])
		wantIs(t, err, workerlease.ErrInvalid, redisstore.ErrRefused)
	}
}
