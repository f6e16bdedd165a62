package server_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// crowdedPool declares a pool of two worker ids and leases one of them for an hour, as another
// process would.
func crowdedPool(t *testing.T, store *redisstore.Store, pool string) (pools *workerlease.Pools, lease workerlease.Lease) {
	t.Helper()
	pools = workerlease.New(store, workerlease.Config{LongestTTL: time.Hour})
	shape := workerlease.Shape{Layout: "41/1/12", Epoch: snowflake.DefaultEpoch}
	expect.NoError(t, "declaring pool "+pool, pools.Create(t.Context(), pool, shape, time.Hour))
	lease, err := pools.Acquire(t.Context(), pool, workerlease.Request{Identity: "other", Shape: shape})
	expect.NoError(t, "leasing a worker id of pool "+pool, err)
	return pools, lease
}

// wantReady checks what /readyz answers, once it has looked.
func (s *service) wantReadiness(t *testing.T, status int, reason string) api.Readiness {
	t.Helper()
	expect.Eventually(t, "what /readyz answers", func() bool { return s.do(t, "GET", "/readyz", "").status == status })
	ready := must[api.Readiness](t, s, status, "GET", "/readyz", "")
	expect.Equal(t, "GET /readyz: ready", ready.Ready, status == 200)
	expect.Equal(t, "GET /readyz: reason", ready.Reason, reason)
	return ready
}

const outdone = "no worker id of a configured pool, of which another process has one"

// A rolling deploy goes on when the new process is ready: that is when it can stamp, as long as the
// old ones can.
func TestProcessThatCannotStampIsNotReadyWhileAnotherCan(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		pools, other := crowdedPool(t, store, "orders")
		first := serve(t, server.Config{Store: store, IDPool: "orders", Identity: "first"})
		first.wantReadiness(t, 200, "")
		second := serve(t, server.Config{Store: store, StampPools: []string{"more", "orders"}, Identity: "second", Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
		ready := second.wantReadiness(t, 503, outdone)
		expect.Equal(t, "worker ids of the second", *ready.WorkerIDs, api.WorkerCount{Held: 1, Waiting: 1})
		expect.MustEqual(t, "pools of the second", len(ready.Workers), 2)
		expect.Equal(t, "its state in pool orders", ready.Workers[1].State, "waiting")
		expect.Equal(t, "pool orders is configured", ready.Workers[1].Configured, true)
		expect.Contains(t, "why it waits", ready.Workers[1].Reason, "taken")

		easy := serve(t, server.Config{Store: store, IDPool: "orders", Identity: "easy", ReadyWhen: server.ReadyWithStore})
		easy.wantReadiness(t, 200, "")
		lazy := serve(t, server.Config{Store: store}) // stamps nothing, or what it is asked for
		lazy.do(t, "GET", "/id/snowflake/orders", "").wantStatus(t, 503)
		lazy.wantReadiness(t, 200, "")
		for _, s := range []*service{easy, lazy} {
			expect.NoError(t, "closing", s.server.Close(t.Context()))
		}

		expect.NoError(t, "releasing the other's worker id", pools.Release(t.Context(), "orders", other.WorkerID, other.Token, other.NotBefore))
		second.wantReadiness(t, 200, "")
		first.wantReadiness(t, 200, "")
	})
}

// Where no process can stamp, none is better than the others: they answer what else they can. A
// worker id under a process's own identity is that of its last life.
func TestProcessThatCannotStampIsReadyWhereNoneCan(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	fresh := serve(t, server.Config{Store: store, IDPool: "unknown", Identity: "fresh", Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait}})
	ready := fresh.wantReadiness(t, 200, "")
	expect.Contains(t, "why the pool that is unknown is waited for", ready.Workers[0].Reason, "the pool is new to this Redis",
		"coatcheck worker create unknown")

	pools, own := crowdedPool(t, store, "orders")
	shape := workerlease.Shape{Layout: "41/1/12", Epoch: snowflake.DefaultEpoch}
	if _, err := pools.Acquire(t.Context(), "orders", workerlease.Request{Identity: own.Identity, Shape: shape}); err != nil {
		t.Fatalf("leasing the second worker id: %v", err)
	}
	again := serve(t, server.Config{Store: store, IDPool: "orders", Identity: own.Identity})
	ready = again.wantReadiness(t, 200, "")
	expect.Contains(t, "why its pool is waited for", ready.Workers[0].Reason, "taken")
	stranger := serve(t, server.Config{Store: store, IDPool: "orders", Identity: "stranger"})
	stranger.wantReadiness(t, 503, outdone)
}

func TestStrangersHearNoNameOfAPoolThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	_, _ = crowdedPool(t, store, "orders")
	taken := serve(t, server.Config{Store: store, IDPool: "orders", Identity: "first"})
	taken.wantReadiness(t, 200, "")
	s := serve(t, server.Config{Store: store, IDPool: "orders", Identity: "second"})
	s.wantReadiness(t, 503, outdone)
	ready := decode[api.Readiness](t, askedFrom(t, s.server.Handler(), elsewhere), 503)
	expect.Equal(t, "reason that a stranger hears", ready.Reason, outdone)
	expect.Equal(t, "worker ids that a stranger hears of", *ready.WorkerIDs, api.WorkerCount{Waiting: 1})
	expect.Equal(t, "pools that a stranger hears of", len(ready.Workers), 0)
}
