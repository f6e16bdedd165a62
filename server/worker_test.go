package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestWorkerLeasesOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		t.Run("a lease is granted, renewed, seen and released", s.workerRound)
		t.Run("an ended lease is lost", s.workerLost)
		t.Run("a pool that is exhausted says when to come again", s.workerExhausted)
		t.Run("a ring is shown with all its slots, page by page", s.workerRing)
	})
}

func (s *service) workerRound(t *testing.T) {
	lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/round", `{"identity":"orders-0","ttl_ms":3600000,"layout":"41/10/12","epoch":"2020-01-01T00:00:00Z"}`)
	expect.Equal(t, "POST /worker/round", lease, api.WorkerLease{
		WorkerID: 0, Lease: lease.Lease, Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: api.At(lease.NotBefore.Add(time.Hour)), TTLMs: 3_600_000, RenewEveryMs: 1_200_000,
		Layout: "41/10/12", Epoch: api.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), Identity: "orders-0", ServerTime: lease.ServerTime,
	})
	if lease.Lease == "" || lease.Fence < 1 || lease.ServerTime.After(lease.NotAfter.Time) {
		t.Errorf("POST /worker/round: got %+v, want a secret, a fence from 1, and a server's time within the window", lease)
	}
	mine := "Lease-Token: " + lease.Lease
	renewed := must[api.WorkerRenewed](t, s, 200, "PUT", "/worker/round/0", `{"ttl_ms":3600000}`, mine)
	expect.Equal(t, "PUT /worker/round/0", renewed, api.WorkerRenewed{
		WorkerID: 0, NotAfter: api.At(renewed.ServerTime.Add(time.Hour)), TTLMs: 3_600_000, RenewEveryMs: 1_200_000, ServerTime: renewed.ServerTime,
	})
	if renewed.NotAfter.Before(lease.NotAfter.Time) {
		t.Errorf("PUT /worker/round/0: got a window until %v, want it to end no earlier than before, at %v", renewed.NotAfter, lease.NotAfter)
	}
	// the ttl is the pool's
	checkProblem(t, s.do(t, "PUT", "/worker/round/0", `{"ttl_ms":7200000}`, mine), api.LayoutMismatch)
	slot := must[api.WorkerRing](t, s, 200, "GET", "/worker/round?n=1", "").Slots[0]
	expect.Equal(t, "GET /worker/round?n=1: slot", slot, api.WorkerSlot{WorkerID: 0, State: "held", Holder: "orders-0", Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: renewed.NotAfter})
	for range 2 { // a repeat is harmless
		must[nothing](t, s, 204, "DELETE", "/worker/round/0", "", mine)
	}
	slot = must[api.WorkerRing](t, s, 200, "GET", "/worker/round?cursor=0", "").Slots[0]
	expect.Equal(t, "GET /worker/round after the release: state of the slot", slot.State, "free")
	expect.Equal(t, "GET /worker/round after the release: last holder of the slot", slot.Holder, "orders-0")
	checkProblem(t, s.do(t, "PUT", "/worker/round/0", "", mine), api.LeaseLost)
}

func (s *service) workerLost(t *testing.T) {
	lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/lost", `{"ttl_ms":100}`)
	mine := "Lease-Token: " + lease.Lease
	expect.Eventually(t, "the lease ends", func() bool {
		return must[api.WorkerRing](t, s, 200, "GET", "/worker/lost?n=1", "").Slots[0].State == "free"
	})
	checkProblem(t, s.do(t, "PUT", "/worker/lost/0", "", mine), api.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/worker/lost/0", "", mine), api.LeaseLost)
}

func (s *service) workerExhausted(t *testing.T) {
	for range 2 {
		must[api.WorkerLease](t, s, 201, "POST", "/worker/full", `{"layout":"41/1/12","ttl_ms":3600000}`)
	}
	a := s.do(t, "POST", "/worker/full", "")
	checkProblem(t, a, api.PoolExhausted)
	a.wantRetryAfter(t, 1, 3600) // the earliest end
}

func (s *service) workerRing(t *testing.T) {
	checkProblem(t, s.do(t, "GET", "/worker/ring", ""), api.NotFound)
	for range 3 {
		must[api.WorkerLease](t, s, 201, "POST", "/worker/ring", `{"layout":"41/4/12","identity":"me","ttl_ms":3600000}`)
	}
	for i := range 16 {
		n := i + 1 // slots a page
		path, seen := fmt.Sprintf("/worker/ring?n=%d", n), 0
		for pages := 1; ; pages++ {
			page := must[api.WorkerRing](t, s, 200, "GET", path, "")
			want := api.WorkerPool{Pool: "ring", Layout: "41/4/12", Epoch: page.Epoch, Size: 16, Used: 3, Held: 3, TTLMs: 3_600_000, EndsAt: api.At(endOf("41/4/12", page.Epoch.Time))}
			expect.MustEqual(t, "GET "+path, page.WorkerPool, want)
			expect.Equal(t, "GET "+path+": the server's time is missing", page.ServerTime.IsZero(), false)
			for _, slot := range page.Slots {
				if held := slot.State == "held"; slot.WorkerID != seen || held != (seen < 3) || held != (slot.Holder == "me") || held != (slot.Fence > 0) {
					t.Errorf("GET %s: slot %d is %+v, want the first three to be held by me and the others to be free", path, seen, slot)
				}
				seen++
			}
			if page.Next == nil {
				expect.Equal(t, fmt.Sprintf("number of pages with %d slots each", n), pages, (16+n-1)/n)
				expect.Equal(t, fmt.Sprintf("number of slots on pages of %d", n), seen, 16)
				break
			}
			path = fmt.Sprintf("/worker/ring?cursor=%d&n=%d", *page.Next, n)
		}
	}
	page := must[api.WorkerRing](t, s, 200, "GET", "/worker/ring?cursor=1000", "")
	expect.Equal(t, "GET /worker/ring?cursor=1000, which is beyond the ring: slots", page.Slots, []api.WorkerSlot{})
	expect.Equal(t, "GET /worker/ring?cursor=1000, which is beyond the ring: next", page.Next, nil)
}
