package workerlease_test

import (
	"errors"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A process that trusts restarts leases at once what is free; one that does not waits, and has
// others wait.
func TestTrustedRestartQuarantinesNoPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	on := func(restarts redisstore.Restarts) pools {
		store := storetest.Open(t, redisstore.Config{URL: server.URL(), Restarts: restarts})
		return pools{workerlease.New(store, workerlease.Config{}), store}
	}
	trusting := on(redisstore.TrustRestarts)
	expect.Error(t, "declaring the pool", trusting.Create(t.Context(), "p", of(2).Shape, of(2).TTL), nil)
	first := trusting.acquire(t, "p", of(2))
	server.Kill()
	server.Restart()
	var second workerlease.Lease
	expect.Eventually(t, "the restarted Redis answers", func() (is bool) {
		lease, err := trusting.Acquire(t.Context(), "p", of(2))
		second = lease
		if err != nil && !errors.Is(err, redisstore.ErrUnavailable) {
			t.Fatalf("acquiring after a restart: %v", err)
		}
		return err == nil
	})
	expect.Equal(t, "the worker ids leased before and after", []int{first.WorkerID, second.WorkerID}, []int{0, 1})
	_, err := trusting.Renew(t.Context(), first, 0)
	expect.Error(t, "renewing the lease of before", err, nil)

	_, err = on(redisstore.WaitRestarts).Acquire(t.Context(), "p", of(2))
	expect.Error(t, "acquiring without trust", err, workerlease.ErrQuarantined)
	_, err = trusting.Acquire(t.Context(), "p", of(2))
	expect.Error(t, "acquiring after a process that waits", err, workerlease.ErrQuarantined)
}
