package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// reading and writing are the requests that need the store, as they would succeed. Names in braces
// stand for what a fixture made.
var (
	reading = []call{
		{method: "GET", path: "/counter/k"},
		{method: "GET", path: "/token/{issued}"},
		{method: "GET", path: "/worker/pool"},
		{method: "GET", path: "/worker"},
		{method: "GET", path: "/id/decode/8903994070007848?pool=pool"},
		{method: "GET", path: "/payments"},
	}
	writing = []call{
		{method: "GET", path: "/incr/k"},
		{method: "POST", path: "/incr/k?by=7"},
		{method: "POST", path: "/incr/new", header: []string{"Idempotency-Key: fresh"}},
		{method: "POST", path: "/token"},
		{method: "POST", path: "/token/{issued}/claim", body: forAnHour},
		{method: "POST", path: "/token/{claimed}/extend", header: []string{"Lease-Token: {lease}"}, body: `{"lease_ms":3600000}`},
		{method: "POST", path: "/token/{claimed}/complete", header: []string{"Lease-Token: {lease}"}, body: `{"status":200}`},
		{method: "POST", path: "/token/{claimed}/release", header: []string{"Lease-Token: {lease}"}},
		{method: "POST", path: "/worker/other"},
		{method: "POST", path: "/worker/new"},
		{method: "PUT", path: "/worker/declared"},
		{method: "PUT", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}},
		{method: "DELETE", path: "/worker/pool/1", header: []string{"Lease-Token: {w1}"}},
		{method: "POST", path: "/payments", header: []string{"Idempotency-Key: fresh"}, body: `{"amount":5,"currency":"EUR","to":"a"}`},
	}
)

// keeping makes a redis-server write each change to its append-only file before it answers, which a
// kill survives.
var keeping = []string{"--appendonly", "yes", "--appendfsync", "no"}

// onRedis is a fixture on a private redis-server.
func onRedis(t *testing.T, args ...string) (*redistest.Server, *fixture) {
	t.Helper()
	redis := redistest.Start(t, args...)
	f := newFixture(t, storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience}))
	must[api.Readiness](t, f.s, 200, "GET", "/readyz", "") // notes the incarnation
	return redis, f
}

func (f *fixture) send(t testing.TB, c call) answer {
	t.Helper()
	c = f.filled(c)
	return f.s.do(t, c.method, c.path, c.body, c.header...)
}

// wantUnavailable checks that each call is refused as one whose store is away, and told to come
// again.
func (f *fixture) wantUnavailable(t *testing.T, calls []call) {
	t.Helper()
	for _, c := range calls {
		a := f.send(t, c)
		checkProblem(t, a, api.StoreUnavailable)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%v; want a Retry-After", a)
		}
	}
}

// wantNotReady checks that the process says it lives and says why it should get no requests.
func (s *service) wantNotReady(t *testing.T) {
	t.Helper()
	s.do(t, "GET", "/livez", "").wantStatus(t, 200)
	s.server.ForgetHealth()
	a := s.do(t, "GET", "/readyz", "")
	a.wantHeader(t, "Cache-Control", "no-store")
	if ready := decode[api.Readiness](t, a, 503); ready.Ready || ready.Reason == "" {
		t.Errorf("%v; want it not to be ready, with a reason", a)
	}
}

func (s *service) wantReady(t *testing.T) {
	t.Helper()
	expect.Eventually(t, "/readyz is 200 again", func() bool {
		s.server.ForgetHealth()
		return s.do(t, "GET", "/readyz", "").status == 200
	})
}

// stateOf is a dump without the marker that /readyz writes.
func stateOf(t testing.TB, client *redis.Client) map[string]string {
	t.Helper()
	state := dump(t, client)
	for key := range state {
		if strings.Contains(key, "incarnation:") {
			delete(state, key)
		}
	}
	return state
}

// wantWhole checks that everything works again and continues where it was. Under another
// incarnation no worker id of a pool that was in use is granted, since a failover may have lost who
// has it.
func (f *fixture) wantWhole(t *testing.T, sameLife bool) {
	t.Helper()
	for _, c := range append(reading, writing...) {
		if c.method == "POST" && c.path == "/worker/other" && !sameLife {
			checkProblem(t, f.send(t, c), api.PoolQuarantined)
			continue
		}
		// it was completed just before
		if a := f.send(t, c); a.status >= 300 && !strings.HasSuffix(c.path, "/release") {
			t.Errorf("%v; want success", a)
		}
	}
	want := int64(3 + 1 + 7)
	if !sameLife {
		want += counter.DefaultMargin // past what may have been handed out and lost
	}
	expect.Equal(t, "GET /counter/k, which was 3, after increments by 1 and 7", must[api.Counter](t, f.s, 200, "GET", "/counter/k", "").Value, want)
	expect.Equal(t, "payments in the ledger: the fixture's and one more", f.s.ledger(t).Total, 2)
}

func TestStoreThatIsDownIsToldAndNothingIsDone(t *testing.T) {
	t.Parallel()
	redis, f := onRedis(t, keeping...)
	before := stateOf(t, redis.Client())
	redis.Kill()
	f.wantUnavailable(t, append(reading, writing...))
	f.s.wantNotReady(t)
	redis.Restart()
	f.s.wantReady(t)
	expect.Equal(t, "all of Redis after the fault", stateOf(t, redis.Client()), before)
	f.wantWhole(t, false)
}

// goesOn reports whether a request renews or ends what is held already, which needs no memory that
// is not given free.
func goesOn(c call) bool {
	return strings.HasPrefix(c.path, "/token/{claimed}/") || strings.HasPrefix(c.path, "/worker/pool/")
}

func TestWorkerIDsAndLocksAreRenewedAndGivenBackWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exclusive", "shared"} {
		t.Run(mode, func(t *testing.T) {
			redis, f := onRedis(t)
			var locks []api.LockGranted
			for range map[string]int{"exclusive": 1, "shared": 2}[mode] {
				locks = append(locks, must[api.LockGranted](t, f.s, 201, "POST", "/lock/l", `{"ttl_ms":3600000,"mode":"`+mode+`"}`))
			}
			expect.NoError(t, "CONFIG SET maxmemory 1", redis.Client().ConfigSet(t.Context(), "maxmemory", "1").Err())
			checkProblem(t, f.send(t, call{method: "POST", path: "/worker/new"}), api.StoreUnavailable)
			held := []call{{method: "PUT", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}}, {method: "DELETE", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}}}
			for _, method := range []string{"PUT", "DELETE"} {
				for _, lock := range locks {
					held = append(held, call{method: method, path: "/lock/l", header: []string{"Lease-Token: " + lock.Lease}})
				}
			}
			for _, c := range held {
				if a := f.send(t, c); a.status >= 300 {
					t.Errorf("%v; want success", a)
				}
			}
		})
	}
}

func TestAttemptThatRunsCanEndWhenMemoryIsFull(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"complete", "release"} {
		t.Run(end, func(t *testing.T) {
			redis, f := onRedis(t)
			expect.NoError(t, "CONFIG SET maxmemory 1", redis.Client().ConfigSet(t.Context(), "maxmemory", "1").Err())
			checkProblem(t, f.send(t, call{method: "POST", path: "/token/{issued}/claim", body: forAnHour}), api.StoreUnavailable)
			for _, c := range slices.DeleteFunc(slices.Clone(writing), func(c call) bool { return !strings.HasPrefix(c.path, "/token/{claimed}/") }) {
				if strings.HasSuffix(c.path, "/extend") || strings.HasSuffix(c.path, end) {
					if a := f.send(t, c); a.status >= 300 {
						t.Errorf("%v; want success", a)
					}
				}
			}
		})
	}
}

func TestStoreThatRefusesWritesIsToldAndNothingIsDone(t *testing.T) {
	t.Parallel()
	// the command that makes it, and the one that ends it
	for name, fault := range map[string][2][]any{
		"read-only":     {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
		"out of memory": {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
		"no replicas":   {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			redis, f := onRedis(t)
			before := stateOf(t, redis.Client())
			expect.NoError(t, fmt.Sprint(fault[0]), redis.Client().Do(t.Context(), fault[0]...).Err())
			refused := writing
			if name == "out of memory" {
				refused = slices.DeleteFunc(slices.Clone(writing), goesOn)
			}
			f.wantUnavailable(t, refused)
			for _, c := range reading {
				f.send(t, c).wantStatus(t, 200) // can be answered
			}
			f.s.wantNotReady(t)
			expect.Equal(t, "all of Redis after the fault", stateOf(t, redis.Client()), before)
			expect.NoError(t, fmt.Sprint(fault[1]), redis.Client().Do(t.Context(), fault[1]...).Err())
			f.s.wantReady(t)
			// a server that was a replica for a while may have lost something
			if name != "read-only" {
				f.wantWhole(t, true)
			}
		})
	}
}

func TestStoreThatComesBackEmptyIsNoticedAndForgetsNoTokenIntoASecondRun(t *testing.T) {
	t.Parallel()
	redis, f := onRedis(t)
	redis.RestartEmpty()
	f.s.wantReady(t)
	expect.Contains(t, "the log after Redis came back empty", f.s.log.String(), "another incarnation")
	for _, token := range []string{"{issued}", "{claimed}", "{done}"} {
		checkProblem(t, f.send(t, call{method: "GET", path: "/token/" + token}), api.TokenUnknown)
		checkProblem(t, f.send(t, call{method: "POST", path: "/token/" + token + "/claim", body: `{"fingerprint":"f"}`}), api.TokenUnknown)
		payment := call{method: "POST", path: "/payments", body: `{"amount":5,"currency":"EUR","to":"a"}`, header: []string{"Idempotency-Token: " + token}}
		checkProblem(t, f.send(t, payment), api.TokenUnknown)
	}
	checkProblem(t, f.send(t, call{method: "PUT", path: "/worker/pool/0", header: []string{"Lease-Token: {w0}"}}), api.LeaseLost)
	expect.Equal(t, "payments in the ledger after Redis came back empty", f.s.ledger(t).Total, 0)
}

// A server with --ack 1 and no replica: the write is on the master, and the client hears that
// no replica has confirmed it.
func TestWriteThatNoReplicaConfirmsHasAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Ack: 1, Timeout: storePatience, AckTimeout: 50 * time.Millisecond})
	s := serve(t, server.Config{Store: store, Dev: true})
	payment := `{"amount":5,"currency":"EUR","to":"a"}`
	checkProblem(t, s.do(t, "POST", "/incr/k", ""), api.OutcomeUnknown)
	checkProblem(t, s.do(t, "POST", "/token", ""), api.OutcomeUnknown)
	checkProblem(t, s.do(t, "POST", "/worker/p", ""), api.OutcomeUnknown)
	checkProblem(t, s.do(t, "POST", "/payments", payment, "Idempotency-Key: k"), api.OutcomeUnknown)
	expect.Equal(t, "payments made after a claim that no replica has confirmed", s.ledger(t).Total, 0)
	s.wantNotReady(t)
	ready := must[api.Readiness](t, s, 503, "GET", "/readyz", "")
	expect.Equal(t, "GET /readyz: ack", ready.Ack, 1)
	expect.Contains(t, "GET /readyz: reason", ready.Reason, "0 of 1 replicas")
}

// The claim is made, and then the ledger's part of the store refuses: provably nothing was charged.
func TestChargeThatTheStoreRefusesGivesTheTokenBack(t *testing.T) {
	t.Parallel()
	redis, f := onRedis(t)
	book := f.ledger(t, redis.Client())
	token := f.s.issue(t, `{"scope":"payments"}`)
	pay := call{method: "POST", path: "/payments", body: payment, header: []string{"Idempotency-Token: " + token}}
	expect.NoError(t, fmt.Sprintf("RENAME %s aside", book), redis.Client().Rename(t.Context(), book, "aside").Err())
	expect.NoError(t, "SET "+book, redis.Client().Set(t.Context(), book, "no ledger", 0).Err())
	for _, c := range []call{pay, {method: "GET", path: "/payments"}} {
		checkProblem(t, f.send(t, c), api.WrongType)
	}
	expect.Equal(t, "the token after a charge that the store refused: state", f.s.state(t, token), "issued")
	expect.NoError(t, "RENAME aside "+book, redis.Client().Rename(t.Context(), "aside", book).Err())
	decode[api.Payment](t, f.send(t, pay), 201)
	expect.Equal(t, "payments in the ledger: the fixture's and this", f.s.ledger(t).Total, 2)
}

// ledger finds the ledger's key.
func (f *fixture) ledger(t *testing.T, client *redis.Client) string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*payments*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("KEYS *payments*: got %q, error %v; want one key", keys, err)
	}
	return keys[0]
}

// What the store failed with is the operator's business: only a program that asks its own handler
// is told.
func TestProblemTellsWhatTheStoreFailedWithOnlyWhereThatIsWanted(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	redis.Kill()
	for tells, want := range map[bool]bool{false: false, true: true} {
		s := serve(t, server.Config{Store: store, TellCauses: tells})
		for _, path := range []string{"/counter/k", "/id/snowflake/pool"} {
			a := s.do(t, "GET", path, "")
			checkProblem(t, a, api.StoreUnavailable)
			if got := strings.Contains(string(a.body), "connection refused"); got != want {
				t.Errorf("with TellCauses %v: got %v; want it to say \"connection refused\": %v", tells, a, want)
			}
		}
	}
}
