package workerlease_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// east is what the pools of these tests are: the defaults' ids look otherwise.
var east = workerlease.Shape{Layout: "41/5/5/12", Datacenter: 3, Epoch: time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)}

// after waits out a quarantine, if there is one.
func (p pools) after(t *testing.T, pool string, request workerlease.Request) workerlease.Lease {
	t.Helper()
	h := p.hold(t, pool, request, workerlease.HoldOptions{Wait: time.Hour})
	lease, err := h.Current()
	expect.MustEqual(t, "error of the lease held", err, nil)
	return lease
}

func wantShape(t *testing.T, what string, lease workerlease.Lease, want workerlease.Shape, ttl time.Duration) {
	t.Helper()
	got := workerlease.Shape{Layout: lease.Layout, Datacenter: lease.Datacenter, Epoch: lease.Epoch}
	expect.Equal(t, what, got, want)
	expect.Equal(t, what+": ttl", lease.TTL, ttl)
}

// A process that had seen a pool does not give it another shape once Redis has lost it, whatever
// the callers leave out.
func TestShapeThatWasSeenOutlivesALoss(t *testing.T) {
	allowing(t, time.Minute, func(t *testing.T, p pools) {
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "p", east, time.Minute), nil)
		p.acquire(t, "p", ofAny(2))
		p.forget(t, "p")
		_, err := p.Acquire(t.Context(), "p", ofAny(2)) // which names a layout: of's
		expect.Equal(t, "wait after the loss", waitOf(t, err), time.Minute+time.Second)
		other := ofAny(2)
		other.WantLayout = true
		_, err = p.Acquire(t.Context(), "p", other)
		expect.Error(t, "Acquire of another layout than was seen", err, workerlease.ErrOtherPool)
		wantShape(t, "shape after the loss", p.after(t, "p", ofAny(2)), east, time.Minute)
	})
}

// One that had not seen it knows it by its settings.
func TestPinnedPoolIsNothingElse(t *testing.T) {
	allowing(t, 0, func(t *testing.T, p pools) {
		pin := workerlease.Pin{Shape: east, TTL: 10 * time.Minute}
		pinned := pools{workerlease.New(p.store, workerlease.Config{Pools: map[string]workerlease.Pin{"p": pin}}), p.store}
		wantShape(t, "shape of the first grant", pinned.after(t, "p", ofAny(2)), east, 10*time.Minute)
		for name, change := range map[string]func(r *workerlease.Request){
			"layout":     func(r *workerlease.Request) { r.Shape.Layout, r.WantLayout = "41/10/12", true },
			"epoch":      func(r *workerlease.Request) { r.Shape.Epoch, r.WantEpoch = epoch, true },
			"datacenter": func(r *workerlease.Request) { r.Shape.Datacenter, r.WantDatacenter = 4, true },
			"ttl":        func(r *workerlease.Request) { r.TTL = time.Second },
		} {
			request := workerlease.Request{Shape: east}
			change(&request)
			_, err := pinned.Acquire(t.Context(), "p", request)
			wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
			if name != "ttl" {
				wantIs(t, pinned.Create(t.Context(), "p", request.Shape, 0), workerlease.ErrOtherPool, redisstore.ErrRefused)
			}
		}
		p.forget(t, "p")
		_, err := pinned.Acquire(t.Context(), "p", ofAny(2))
		expect.Equal(t, "wait after a loss", waitOf(t, err), 10*time.Minute+time.Second)
		foreign := workerlease.Lease{
			Pool: "p", Token: "aaaaaaaaaaaaaaaaaaaaaa.1", TTL: 10 * time.Minute, Layout: "41/10/12", Epoch: epoch, Fence: 1, NotAfter: time.Now().Add(time.Minute),
		}
		_, err = pinned.Renew(t.Context(), foreign, 0)
		wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
		wantShape(t, "shape after a loss", pinned.after(t, "p", ofAny(2)), east, 10*time.Minute)

		// One that pins it otherwise is refused by what Redis knows.
		wrong := workerlease.New(p.store, workerlease.Config{Pools: map[string]workerlease.Pin{"p": {Shape: of(1).Shape, TTL: 10 * time.Minute}}})
		_, err = wrong.Acquire(t.Context(), "p", ofAny(1))
		wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
	})
}

// A layout that is pinned in another writing is the same layout.
func TestPinnedLayoutMayBeWrittenOtherwise(t *testing.T) {
	allowing(t, 0, func(t *testing.T, p pools) {
		pin := workerlease.Pin{Shape: east}
		pin.Shape.Layout = "41/05/05/12"
		pinned := pools{workerlease.New(p.store, workerlease.Config{Pools: map[string]workerlease.Pin{"written": pin}}), p.store}
		plain := of(2).Shape
		for name, request := range map[string]workerlease.Request{
			"any": {}, "its own": {Shape: east, WantLayout: true}, "as it is written": {Shape: pin.Shape, WantLayout: true}, "any, and may not shape pools": {NewShape: &plain},
		} {
			lease := pinned.after(t, "written", request)
			wantShape(t, "shape for who asks for "+name, lease, east, workerlease.DefaultTTL)
			_, err := pinned.Renew(t.Context(), lease, 0)
			expect.Error(t, "Renew for who asked for "+name, err, nil)
		}
	})
}

// A caller that may not declare pools gets one that is new as it is by default.
func TestCallerThatMayNotShapePoolsGetsTheDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, p pools) {
		plain := of(2).Shape
		request := workerlease.Request{Shape: east, WantLayout: true, NewShape: &plain}
		_, err := p.Acquire(t.Context(), "p", request)
		wantIs(t, err, workerlease.ErrOtherPool, redisstore.ErrRefused)
		expect.Contains(t, "the refusal", err.Error(), "it is not there", "41/2/12")
		request = workerlease.Request{Shape: east, NewShape: &plain}
		lease, err := p.Acquire(t.Context(), "p", request)
		expect.MustEqual(t, "error of Acquire that names no layout", err, nil)
		wantShape(t, "shape of the first grant", lease, plain, workerlease.DefaultTTL)
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "declared", east, 0), nil)
		request.WantLayout = true
		lease, err = p.Acquire(t.Context(), "declared", request)
		expect.MustEqual(t, "error of Acquire of a pool that was declared so", err, nil)
		wantShape(t, "shape of the declared pool", lease, east, workerlease.DefaultTTL)
	})
}

// An administrator gives a pool another shape when its windows have all ended.
func TestPoolIsReplacedWhenItsWindowsHaveEnded(t *testing.T) {
	allowing(t, time.Minute, func(t *testing.T, p pools) {
		expect.MustEqual(t, "error of Create", p.Create(t.Context(), "p", of(2).Shape, time.Minute), nil)
		lease := p.acquire(t, "p", ofAny(2))
		err := p.Replace(t.Context(), "p", east, 30*time.Second)
		wantIs(t, err, workerlease.ErrExists, redisstore.ErrRefused)
		refused := err.(*workerlease.OtherPoolError) //nolint:errorlint // it is the very type
		expect.Equal(t, "wait for the open window", refused.Wait, time.Minute+time.Second)
		time.Sleep(refused.Wait)
		expect.MustEqual(t, "error of Replace", p.Replace(t.Context(), "p", east, 30*time.Second), nil)
		_, err = p.Renew(t.Context(), lease, 0)
		expect.Error(t, "Renew of a lease from before", err, redisstore.ErrRefused)
		next := p.acquire(t, "p", workerlease.Request{Shape: of(2).Shape})
		wantShape(t, "shape now", next, east, 30*time.Second)
		if next.NotBefore.Before(lease.NotAfter) || next.Fence <= lease.Fence {
			t.Errorf("grant after the change: got %+v, want a window after %v and a fence above %d", next, lease.NotAfter, lease.Fence)
		}
	})
}
