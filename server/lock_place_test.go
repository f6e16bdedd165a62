package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Three clients wait with one short request after the other, and are served as they came.
func TestWaitersKeepTheirPlacesFromRequestToRequest(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		// a client may be late with its next request
		s := serve(t, server.Config{Store: store, RequestTimeout: 2 * time.Hour, Locks: lock.Config{Window: time.Minute}})
		first := s.lock(t, "turns", forAnHourHeld)
		var queue turns
		var all sync.WaitGroup
		for i := range queue.ended {
			all.Go(func() { queue.wait(t, s, i) })
			expect.Eventually(t, fmt.Sprintf("%d wait", i+1), func() bool { return s.lockInfo(t, "turns").Waiting == i+1 })
		}
		for i := range queue.ended {
			expect.Eventually(t, fmt.Sprintf("three requests of waiter %d have ended", i), func() bool { return queue.ended[i].Load() >= 3 })
		}
		var owners []string
		for _, waiter := range s.lockInfo(t, "turns").Queue {
			owners = append(owners, waiter.Owner)
		}
		expect.Equal(t, "GET /lock/turns: the queue after these requests", owners, []string{"w0", "w1", "w2"})
		s.unlock(t, first)
		all.Wait()
		expect.Equal(t, "the order in which the waiters were served", queue.served, []int{0, 1, 2})
		if !slices.IsSorted(queue.fences) || len(queue.fences) > 0 && queue.fences[0] <= first.Fence {
			t.Errorf("fences of the waiters: got %d, want them to rise above %d", queue.fences, first.Fence)
		}
	})
}

// turns is what became of clients that wait by several requests.
type turns struct {
	ended [3]atomic.Int64 // requests of each that ended without the lock

	mu     sync.Mutex
	served []int
	fences []int64
}

// wait asks for the lock until it is granted, and releases it.
func (q *turns) wait(t *testing.T, s *service, i int) {
	ctx, place := context.WithoutCancel(t.Context()), "Lease-Token: "+secret.New()
	acquire := call{method: "POST", path: "/lock/turns", body: fmt.Sprintf(`{"ttl_ms":3600000,"wait_ms":20,"owner":"w%d"}`, i), header: []string{place}}
	for {
		a, err := s.send(ctx, acquire)
		if err == nil && a.status == 409 {
			q.ended[i].Add(1)
			continue
		}
		var granted api.LockGranted
		if err != nil || a.status != 201 || json.Unmarshal(a.body, &granted) != nil {
			t.Errorf("waiter %d: %v, error %v; want status 201", i, a, err)
			return
		}
		expect.Equal(t, "the lease of a lock that was waited for with a place", "Lease-Token: "+granted.Lease, place)
		q.mu.Lock()
		q.served, q.fences = append(q.served, i), append(q.fences, granted.Fence)
		q.mu.Unlock()
		break
	}
	if a, err := s.send(ctx, call{method: "DELETE", path: "/lock/turns", header: []string{place}}); err != nil || a.status != 204 {
		t.Errorf("waiter %d: DELETE: %v, error %v; want status 204", i, a, err)
	}
}

// A place is kept after its request, until it is given back.
func TestPlaceInAQueueIsGivenBack(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, RequestTimeout: 2 * time.Hour})
		s.lock(t, "place", forAnHourHeld)
		place := "Lease-Token: " + secret.New()
		checkProblem(t, s.do(t, "POST", "/lock/place", `{"wait_ms":1}`, place), api.LockHeld)
		expect.Equal(t, "GET /lock/place: waiting after a request with a place", s.lockInfo(t, "place").Waiting, 1)
		must[nothing](t, s, 204, "DELETE", "/lock/place", "", place)
		expect.Equal(t, "GET /lock/place: waiting after the place was given back", s.lockInfo(t, "place").Waiting, 0)
		checkProblem(t, s.do(t, "DELETE", "/lock/place", "", place), api.LeaseLost)
		for _, malformed := range []string{"short", secret.New() + "x", secret.New()[:21] + "="} {
			problem := checkProblem(t, s.do(t, "POST", "/lock/place", `{"wait_ms":1}`, "Lease-Token: "+malformed), api.InvalidRequest)
			expect.Equal(t, "field of the problem with the place "+malformed, problem.Field, "Lease-Token")
		}
	})
}
