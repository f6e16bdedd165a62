package server_test

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// What a newer version has written is refused with the version to install, and not changed; all
// else goes on.
func TestRecordsOfANewerVersionAreRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience}), Dev: true})
	token := s.issue(t, `{}`)
	lease := "Lease-Token: " + s.claim(t, token, forAnHour).Lease
	must[api.Incremented](t, s, 200, "GET", "/incr/k", "")
	must[api.Incremented](t, s, 200, "GET", "/incr/newer", "")
	granted := must[api.WorkerLease](t, s, 201, "POST", "/worker/orders", `{"ttl_ms":3600000}`)
	held := s.lock(t, "nightly", forAnHourHeld)

	renewed := append(redis.Client().Keys(t.Context(), "coatcheck:token:*").Val(),
		"coatcheck:counter:{newer}", "coatcheck:counters:{marker}", "coatcheck:lock:{nightly}:fence")
	for _, key := range renewed {
		redis.Client().Set(t.Context(), key, "@2:9.9.9 "+redis.Client().Get(t.Context(), key).Val(), 0)
	}
	const pool = "coatcheck:worker:{orders}"
	redis.Client().HSet(t.Context(), pool, "pool", "@2:9.9.9 "+redis.Client().HGet(t.Context(), pool, "pool").Val())
	renewed = append(renewed, pool)
	before := map[string]string{}
	for _, key := range renewed {
		before[key] = redis.Client().Dump(t.Context(), key).Val()
	}
	for _, c := range []call{
		{method: "GET", path: "/incr/newer"}, // INCRBY itself says that it is not an integer
		{method: "GET", path: "/incr/k"},     // by INCRBY, and its marker
		{method: "POST", path: "/incr/once", header: []string{"Idempotency-Key: once"}},
		{method: "PUT", path: "/counter/k", body: `{"value":7}`},
		{method: "POST", path: "/token/" + token + "/claim", body: forAnHour},
		{method: "POST", path: "/token/" + token + "/extend", body: `{"lease_ms":3600000}`, header: []string{lease}},
		{method: "POST", path: "/token/" + token + "/complete", body: `{"status":200}`, header: []string{lease}},
		{method: "POST", path: "/worker/orders", body: `{}`},
		{method: "GET", path: "/worker/orders"},
		{method: "PUT", path: "/worker/orders/0", header: []string{"Lease-Token: " + granted.Lease}},
		{method: "POST", path: "/lock/nightly", body: forAnHourHeld},
		{method: "POST", path: "/lock/nightly", body: `{"mode":"shared","wait_ms":60000}`},
		{method: "PUT", path: "/lock/nightly", header: []string{"Lease-Token: " + held.Lease}},
		{method: "DELETE", path: "/lock/nightly", header: []string{"Lease-Token: " + held.Lease}},
		{method: "GET", path: "/lock/nightly"},
	} {
		problem := checkProblem(t, s.do(t, c.method, c.path, c.body, c.header...), api.StoreNewer)
		expect.Contains(t, "detail of "+c.String(), problem.Detail, "in format 2", "knows format 1", "install 9.9.9 or newer")
	}
	for _, key := range renewed {
		if is := redis.Client().Dump(t.Context(), key).Val(); is != before[key] {
			t.Errorf("%s was changed", strings.TrimPrefix(key, "coatcheck:"))
		}
	}
	must[api.WorkerLease](t, s, 201, "POST", "/worker/others", `{"ttl_ms":3600000}`)
	s.unlock(t, s.lock(t, "others", forAnHourHeld))
	s.claim(t, s.issue(t, `{}`), forAnHour)
}

// A newer marker of the store itself makes a service unready, one that runs and one that starts,
// and it says why. It serves callers that ask it all the same.
func TestANewerMarkerOfTheStoreMakesAServiceUnready(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	config := server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience}), Dev: true}
	running := serve(t, config)
	expect.Equal(t, "ready", must[api.Readiness](t, running, 200, "GET", "/readyz", "").Ready, true)
	const key = "coatcheck:incarnation:{store}"
	newer := "@2:9.9.9 " + redis.Client().Get(t.Context(), key).Val()
	redis.Client().Set(t.Context(), key, newer, 0)
	running.server.ForgetHealth()
	for name, s := range map[string]*service{"running": running, "starting": serve(t, config)} {
		found := must[api.Readiness](t, s, 503, "GET", "/readyz", "")
		expect.Contains(t, "reason of the one that is "+name, found.Reason, "newer version", "(marker)", "in format 2", "install 9.9.9 or newer")
		s.claim(t, s.issue(t, `{}`), forAnHour)
		must[api.Incremented](t, s, 200, "GET", "/incr/"+name, "")
		must[api.WorkerLease](t, s, 201, "POST", "/worker/"+name, `{"ttl_ms":3600000}`)
		s.unlock(t, s.lock(t, name, forAnHourHeld))
	}
	expect.Equal(t, "the marker", redis.Client().Get(t.Context(), key).Val(), newer)
}
