package server_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// A key that holds another kind of value stays as it is until an operator looks: asking again does
// not help, and no answer suggests it.
func TestKeyOfAnotherKindIsAConflictThatAskingAgainDoesNotChange(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		for _, key := range []string{onstore.Key(store, "worker", "p"), onstore.Key(store, "worker", "main"),
			onstore.Key(store, "lock", "l"), onstore.Key(store, "lock", "l", "queue"), onstore.Key(store, "lock", "l", "state")} {
			run(t, store, "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x') return {'ok'}", key)
		}
		s := serve(t, server.Config{Store: store, IDPool: "main"})
		const lease = "Lease-Token: AAAAAAAAAAAAAAAAAAAAAA.1767225600000"
		for _, c := range []call{
			{method: "POST", path: "/worker/p"},
			{method: "PUT", path: "/worker/p"},
			{method: "GET", path: "/worker/p"},
			{method: "PUT", path: "/worker/p/0", header: []string{lease}},
			{method: "DELETE", path: "/worker/p/0", header: []string{lease}},
			{method: "GET", path: "/id/snowflake/p"},
			{method: "GET", path: "/id/snowflake"},
			{method: "GET", path: "/id/decode/1?pool=p"},
			{method: "POST", path: "/lock/l", body: `{"ttl_ms":3600000}`},
			{method: "POST", path: "/lock/l", body: `{"ttl_ms":3600000,"wait_ms":1000}`},
			{method: "POST", path: "/lock/l", body: `{"ttl_ms":3600000,"mode":"shared"}`},
			{method: "GET", path: "/lock/l"},
			{method: "DELETE", path: "/lock/l?force=1"},
		} {
			a, err := s.send(t.Context(), c)
			expect.NoError(t, c.String(), err)
			problem := checkProblem(t, a, api.WrongType)
			expect.Contains(t, a.asked+": detail", problem.Detail, "another kind of value")
			a.wantHeader(t, "Retry-After", "")
		}
		s.do(t, "GET", "/readyz", "").wantStatus(t, 200) // no other process can stamp there
	})
}
