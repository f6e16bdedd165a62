package workerlease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p pools) renew(t *testing.T) {
	lease := p.acquire(t, "renewed", of(2))
	longer, err := p.Renew(t.Context(), "renewed", 0, lease.Token, time.Minute)
	if err != nil || longer.TTL != time.Minute || longer.NotAfter.Sub(longer.Now) != time.Minute || longer.Now.Before(lease.Now) {
		t.Errorf("%+v %v", longer, err)
	}
	shorter, err := p.Renew(t.Context(), "renewed", 0, lease.Token, time.Second)
	if err != nil || !shorter.NotAfter.Equal(longer.NotAfter) || shorter.TTL != time.Second {
		t.Errorf("%+v %v after %+v", shorter, err, longer)
	}
	for _, ttl := range []time.Duration{-1, 1, workerlease.MinTTL - 1, workerlease.MaxTTL + 1} {
		_, err := p.Renew(t.Context(), "renewed", 0, lease.Token, ttl)
		wantIs(t, err, workerlease.ErrRequest, redisstore.ErrRefused)
	}
	ring, err := p.Ring(t.Context(), "renewed", 0, 1)
	if err != nil || !ring.Slots[0].NotAfter.Equal(longer.NotAfter) || !ring.Slots[0].NotBefore.Equal(lease.NotBefore) || ring.Slots[0].Fence != lease.Fence {
		t.Errorf("%+v %v", ring, err)
	}
}

func (p pools) renewDefault(t *testing.T) {
	lease := p.acquire(t, "default", of(2))
	for _, row := range []struct{ ask, want time.Duration }{
		{0, 30 * time.Second}, {time.Hour, time.Hour}, {0, time.Hour}, {workerlease.MaxTTL, workerlease.MaxTTL}, {0, workerlease.MaxTTL},
	} {
		got, err := p.Renew(t.Context(), "default", 0, lease.Token, row.ask)
		if err != nil || got.TTL != row.want || got.NotAfter.Sub(got.Now) != row.want {
			t.Errorf("ttl %v: %+v %v", row.ask, got, err)
		}
	}
}

func (p pools) release(t *testing.T) {
	leases := p.fill(t, "released", 1)
	for range 3 { // a repeat is harmless
		if err := p.Release(t.Context(), "released", 1, leases[1].Token); err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.Renew(t.Context(), "released", 1, leases[1].Token, 0)
	wantIs(t, err, workerlease.ErrLost, redisstore.ErrLost)
	p.wantOpen(t, leases[0])
	next := p.acquire(t, "released", of(1))
	if next.WorkerID != 1 || next.Fence <= leases[1].Fence {
		t.Errorf("%+v", next)
	}
	p.wantLost(t, "released", 1, leases[1].Token)
	p.wantOpen(t, next)
}

func (p pools) proof(t *testing.T) {
	lease, second := p.acquire(t, "proof", of(2)), p.acquire(t, "proof", of(2))
	other := p.acquire(t, "other proof", of(2))
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
	p.wantLost(t, "other proof", 0, lease.Token)
	p.wantLost(t, "no such pool", 0, lease.Token)
	p.wantOpen(t, lease)
	p.wantOpen(t, second)
	p.wantOpen(t, other)
}

func (p pools) oldProof(t *testing.T) {
	old := p.fill(t, "old", 1)[0]
	for range 3 {
		if err := p.Release(t.Context(), "old", 0, old.Token); err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil || ring.Used != 2 {
		t.Errorf("%+v %v", ring, err)
	}
}

func (p pools) ring(t *testing.T) {
	_, err := p.Ring(t.Context(), "ring", 0, 10)
	wantIs(t, err, workerlease.ErrUnknown, redisstore.ErrRefused)
	var leases []workerlease.Lease
	for i := range 10 {
		request := of(4)
		request.Identity = []string{"", "orders-1", strings.Repeat("i", 200), "a:b@c~d._-"}[i%4]
		leases = append(leases, p.acquire(t, "ring", request))
	}
	if err := p.Release(t.Context(), "ring", 3, leases[3].Token); err != nil {
		t.Fatal(err)
	}
	for _, page := range []struct{ from, n, slots int }{
		{0, 1, 1}, {0, 3, 3}, {3, 3, 3}, {9, 1, 1}, {0, 10, 10}, {0, workerlease.MaxSlots, 10}, {8, 100, 2}, {10, 1, 0}, {15, 1, 0}, {16, 1, 0}, {1<<workerlease.MaxBits - 1, workerlease.MaxSlots, 0},
	} {
		ring, err := p.Ring(t.Context(), "ring", page.from, page.n)
		if err != nil || len(ring.Slots) != page.slots {
			t.Errorf("%+v: %d slots, %v", page, len(ring.Slots), err)
			continue
		}
		if ring.Layout != "41/4/12" || ring.Bits != 4 || !ring.Epoch.Equal(epoch) || ring.Used != 10 || ring.TTL != 30*time.Second || ring.Now.Before(leases[9].Now) {
			t.Errorf("%+v: %+v", page, ring)
		}
		for i, slot := range ring.Slots {
			lease := leases[page.from+i]
			want := workerlease.Slot{
				WorkerID: lease.WorkerID, State: workerlease.Held, Identity: []string{"", "orders-1", strings.Repeat("i", 200), "a:b@c~d._-"}[lease.WorkerID%4],
				Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: lease.NotAfter,
			}
			if lease.WorkerID == 3 {
				want.State, want.NotAfter = workerlease.Free, slot.NotAfter // its release ended the window
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
		wantIs(t, err, workerlease.ErrRequest, redisstore.ErrRefused)
	}
}
