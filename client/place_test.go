package client_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Three wait for minutes, which takes several requests, and the service is away for one of them.
// They are served as they came.
func TestWaitersKeepTheirPlacesWhileTheServiceIsAwayForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t)
		held := holdLock(t, s, "deploy", client.LockRequest{TTL: time.Hour})
		gone := time.Now().Add(95 * time.Second)
		back := gone.Add(time.Minute)
		s.proxy.disturb(away(gone, back))
		var mu sync.Mutex
		var served []string
		var all sync.WaitGroup
		for i := range 3 {
			owner := strconv.Itoa(i)
			all.Go(func() {
				next, err := s.AcquireLock(t.Context(), "deploy", client.LockRequest{TTL: time.Hour, Wait: 10 * time.Minute, Owner: owner})
				if err != nil {
					t.Errorf("AcquireLock of waiter %s: %v", owner, err)
					return
				}
				mu.Lock()
				served = append(served, owner)
				mu.Unlock()
				succeeds(t, "Release by waiter "+owner, next.Release(t.Context()))
			})
			time.Sleep(time.Second)
			expect.Equal(t, "waiting after "+owner+" has come", shown(t, s, "deploy").Waiting, i+1)
		}
		time.Sleep(time.Until(back) + 10*time.Second)
		succeeds(t, "Release", held.Release(t.Context()))
		all.Wait()
		expect.Equal(t, "the order in which the waiters were served", served, []string{"0", "1", "2"})
		expect.Equal(t, "waiting in the end", shown(t, s, "deploy").Waiting, 0)
	})
}

// away cuts off the requests for a lock that are under way at one time, and those that come until
// another.
func away(gone, back time.Time) fault {
	return func(w http.ResponseWriter, r *http.Request, service http.Handler) bool {
		if r.Method != http.MethodPost || !time.Now().Before(back) {
			return false
		}
		ctx, cancel := context.WithDeadline(r.Context(), gone)
		defer cancel()
		if ctx.Err() == nil {
			service.ServeHTTP(w, r.WithContext(ctx))
		}
		if ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		return true
	}
}
