package server_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// Every domain works, on every kind of Redis, for a user that has the documented rights and no
// more: the test fails at its end if a server has denied the user anything.
func TestServiceNeedsNoMoreThanTheRights(t *testing.T) {
	t.Parallel()
	t.Run("standalone", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Start(t)
		useEverything(t, redisstore.Config{URL: redistest.MakeUser(t, redis.URL()+"/3", "service", redisprobe.Rights(redisstore.ModeStandalone, "coatcheck:"), redis)})
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		set := redistest.StartSentinel(t, 1)
		rights := redisprobe.Rights(redisstore.ModeSentinel, "coatcheck:")
		url := redistest.MakeUser(t, set.URL(), "service", rights, append(set.Replicas(), set.Master())...)
		redistest.MakeUser(t, set.URL(), "watcher", redisprobe.SentinelRights(), set.Sentinels()...)
		useEverything(t, redisstore.Config{URL: url + "?sentinel_username=watcher&sentinel_password=word", Ack: 1, AckTimeout: storePatience / 2})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3, 0)
		useEverything(t, redisstore.Config{URL: redistest.MakeUser(t, cluster.URL(), "service", redisprobe.Rights(redisstore.ModeCluster, "coatcheck:"), cluster.Nodes()...)})
	})
}

// useEverything uses a service with a store of its own.
func useEverything(t *testing.T, config redisstore.Config) {
	t.Helper()
	config.Timeout = storePatience
	s := serve(t, server.Config{Store: storetest.Open(t, config), Dev: true, IDPool: "default"})
	useTokens(t, s)
	useNumbers(t, s)
	useWorkers(t, s)
	useLocks(t, s)
	must[api.LimitTaken](t, s, 200, "POST", "/limit/k", `{"rate":1,"per_ms":60000}`)
	must[nothing](t, s, 204, "DELETE", "/limit/k", "")
	must[api.Readiness](t, s, 200, "GET", "/readyz", "")
}

func useTokens(t *testing.T, s *service) {
	t.Helper()
	token := s.issue(t, `{}`)
	lease := "Lease-Token: " + s.claim(t, token, forAnHour).Lease
	must[nothing](t, s, 204, "POST", "/token/"+token+"/release", "", lease)
	lease = "Lease-Token: " + s.claim(t, token, forAnHour).Lease
	must[api.Extended](t, s, 200, "POST", "/token/"+token+"/extend", `{"lease_ms":3600000}`, lease)
	must[nothing](t, s, 204, "POST", "/token/"+token+"/complete", `{"status":200}`, lease)
	expect.Equal(t, "state of a token that was completed", s.state(t, token), "completed")
	for range 2 {
		must[api.Payment](t, s, 201, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"acct_1"}`, "Idempotency-Key: good")
	}
	expect.Equal(t, "payments", len(s.ledger(t).Payments), 1)
}

func useNumbers(t *testing.T, s *service) {
	t.Helper()
	for i := range 3 {
		want := int64(i + 1)
		expect.Equal(t, "value of a counter", must[api.Incremented](t, s, 200, "GET", "/incr/k", "").Value, want)
		expect.Equal(t, "value of a request that is repeated", must[api.Incremented](t, s, 200, "POST", "/incr/once", "", "Idempotency-Key: once").Value, 1)
	}
	for _, c := range []call{
		{method: "GET", path: "/incr/short?ttl_ms=3600000"},
		{method: "GET", path: "/incr/days?calendar=%7ByyyyMMdd%7D"},
		{method: "PUT", path: "/counter/k", body: `{"value":7}`},
		{method: "GET", path: "/counter/k"},
		{method: "GET", path: "/counter"},
		{method: "GET", path: "/counter?prefix=o"},
		{method: "DELETE", path: "/counter/k"},
		{method: "GET", path: "/id/segment/orders?n=3"},
		{method: "GET", path: "/id/snowflake?n=3"},
	} {
		if a := s.do(t, c.method, c.path, c.body); a.status/100 != 2 {
			t.Errorf("%v; want a status of success", a)
		}
	}
}

func useWorkers(t *testing.T, s *service) {
	t.Helper()
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/declared", "{}")
	lease := must[api.WorkerLease](t, s, 201, "POST", "/worker/orders", `{"identity":"orders-0","ttl_ms":3600000}`)
	at, secret := fmt.Sprintf("/worker/orders/%d", lease.WorkerID), "Lease-Token: "+lease.Lease
	must[api.WorkerLease](t, s, 200, "PUT", at, "", secret)
	must[api.WorkerRing](t, s, 200, "GET", "/worker/orders", "")
	must[api.WorkerPools](t, s, 200, "GET", "/worker", "")
	must[nothing](t, s, 204, "DELETE", at, "", secret)
}

func useLocks(t *testing.T, s *service) {
	t.Helper()
	held := s.lock(t, "alone", forAnHourHeld)
	next := s.waiting(t.Context(), t, "alone", anHoursWait, 0)
	must[api.LockGranted](t, s, 200, "PUT", "/lock/alone", "", "Lease-Token: "+held.Lease)
	s.unlock(t, held)
	granted := decode[api.LockGranted](t, <-next, 201)
	must[api.LockBroken](t, s, 200, "DELETE", fmt.Sprintf("/lock/alone?force=%d", granted.Fence), "")
	for _, body := range []string{`{"ttl_ms":3600000,"mode":"shared"}`, `{"ttl_ms":3600000,"permits":3}`} {
		name := "several" + fmt.Sprint(len(body))
		for range 2 {
			s.unlock(t, s.lock(t, name, body))
		}
	}
	must[api.Locks](t, s, 200, "GET", "/lock", "")
}
