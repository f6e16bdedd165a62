package server_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestWorkerLeasesOverHTTP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		t.Run("a lease is granted, renewed, seen and released", s.workerRound)
		t.Run("an ended lease is lost", s.workerLost)
		t.Run("a pool that is exhausted says when to come again", s.workerExhausted)
		t.Run("a ring is shown with all its slots, page by page", s.workerRing)
		t.Run("many at once get an id each", s.workersAtOnce)
	})
}

func (s *service) workerRound(t *testing.T) {
	lease := must[wire.WorkerLease](t, s, 201, "POST", "/worker/round", `{"identity":"orders-0","ttl_ms":30000,"layout":"41/10/12","epoch":"2020-01-01T00:00:00Z"}`)
	if lease.WorkerID != 0 || lease.Lease == "" || lease.Fence < 1 || lease.TTL != 30_000 || lease.RenewEvery != 10_000 || lease.Layout != "41/10/12" {
		t.Errorf("%+v", lease)
	}
	if lease.NotAfter.Sub(lease.NotBefore) != 30*time.Second || lease.ServerTime.After(lease.NotAfter) || lease.Epoch.Year() != 2020 {
		t.Errorf("%+v", lease)
	}
	mine := "Lease-Token: " + lease.Lease
	renewed := must[wire.WorkerRenewed](t, s, 200, "PUT", "/worker/round/0", `{"ttl_ms":30000}`, mine)
	if renewed.WorkerID != 0 || renewed.TTL != 30_000 || renewed.RenewEvery != 10_000 || renewed.NotAfter.Before(lease.NotAfter) || renewed.NotAfter.Sub(renewed.ServerTime) != 30*time.Second {
		t.Errorf("%+v after %+v", renewed, lease)
	}
	checkProblem(t, s.do(t, "PUT", "/worker/round/0", `{"ttl_ms":60000}`, mine), wire.LayoutMismatch) // the ttl is the pool's
	slot := must[wire.WorkerRing](t, s, 200, "GET", "/worker/round?n=1", "").Slots[0]
	if want := (wire.WorkerSlot{WorkerID: 0, State: "held", Holder: "orders-0", Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: renewed.NotAfter}); slot != want {
		t.Errorf("%+v, want %+v", slot, want)
	}
	for range 2 { // a repeat is harmless
		must[nothing](t, s, 204, "DELETE", "/worker/round/0", "", mine)
	}
	if slot := must[wire.WorkerRing](t, s, 200, "GET", "/worker/round?from=0", "").Slots[0]; slot.State != "free" || slot.Holder != "orders-0" {
		t.Errorf("%+v", slot)
	}
	checkProblem(t, s.do(t, "PUT", "/worker/round/0", "", mine), wire.LeaseLost)
}

func (s *service) workerLost(t *testing.T) {
	lease := must[wire.WorkerLease](t, s, 201, "POST", "/worker/lost", `{"ttl_ms":100}`)
	mine := "Lease-Token: " + lease.Lease
	eventually(t, "the lease ends", func() bool {
		return must[wire.WorkerRing](t, s, 200, "GET", "/worker/lost?n=1", "").Slots[0].State == "free"
	})
	checkProblem(t, s.do(t, "PUT", "/worker/lost/0", "", mine), wire.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/worker/lost/0", "", mine), wire.LeaseLost)
}

func (s *service) workerExhausted(t *testing.T) {
	for range 2 {
		must[wire.WorkerLease](t, s, 201, "POST", "/worker/full", `{"layout":"41/1/12","ttl_ms":20000}`)
	}
	a := s.do(t, "POST", "/worker/full", "")
	checkProblem(t, a, wire.PoolExhausted)
	if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 1 || wait > 20 {
		t.Errorf("Retry-After %q, the earliest end is within 20 s", a.header.Get("Retry-After"))
	}
}

func (s *service) workerRing(t *testing.T) {
	checkProblem(t, s.do(t, "GET", "/worker/ring", ""), wire.NotFound)
	for range 3 {
		must[wire.WorkerLease](t, s, 201, "POST", "/worker/ring", `{"layout":"41/4/12","identity":"me"}`)
	}
	for i := range 16 {
		n := i + 1 // slots a page
		path, seen := fmt.Sprintf("/worker/ring?n=%d", n), 0
		for pages := 1; ; pages++ {
			page := must[wire.WorkerRing](t, s, 200, "GET", path, "")
			if page.Pool != "ring" || page.Size != 16 || page.Used != 3 || page.Layout != "41/4/12" || page.TTL != 30_000 || page.ServerTime.IsZero() {
				t.Fatalf("%+v", page)
			}
			for _, slot := range page.Slots {
				if held := slot.State == "held"; slot.WorkerID != seen || held != (seen < 3) || held != (slot.Holder == "me") || held != (slot.Fence > 0) {
					t.Errorf("%d a page: slot %d is %+v", n, seen, slot)
				}
				seen++
			}
			if page.Next == nil {
				if want := (16 + n - 1) / n; pages != want || seen != 16 {
					t.Errorf("%d a page: %d pages, %d slots", n, pages, seen)
				}
				break
			}
			path = fmt.Sprintf("/worker/ring?from=%d&n=%d", *page.Next, n)
		}
	}
	if page := must[wire.WorkerRing](t, s, 200, "GET", "/worker/ring?from=1000", ""); page.Slots == nil || len(page.Slots) != 0 || page.Next != nil {
		t.Errorf("beyond the ring: %+v", page)
	}
}

func (s *service) workersAtOnce(t *testing.T) {
	leases := make([]wire.WorkerLease, 40)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			a, err := s.send(context.WithoutCancel(t.Context()), call{method: "POST", path: "/worker/at-once"})
			if err != nil || a.status != 201 || strictly(a.body, &leases[i]) != nil {
				t.Errorf("%v %d %s", err, a.status, a.body)
			}
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, lease := range leases {
		seen[lease.WorkerID] = true
	}
	if len(seen) != len(leases) {
		t.Errorf("%d leases have %d worker ids", len(leases), len(seen))
	}
}
