package server_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// measured is a service whose metrics see its store.
type measured struct {
	*service
	redis *redistest.Server
}

// measure starts one on a redis-server of its own.
func measure(t *testing.T, config server.Config, store redisstore.Config) *measured {
	t.Helper()
	redis := redistest.Start(t)
	return &measured{measureOn(t, redis, config, store), redis}
}

func measureOn(t *testing.T, redis *redistest.Server, config server.Config, store redisstore.Config) *service {
	t.Helper()
	config.Metrics = metrics.NewService("v1.2.3")
	store.URL, store.Observers = redis.URL(), []observe.Observer{config.Metrics.Observer()}
	config.Store = storetest.Open(t, store)
	return serve(t, config)
}

// figures are the values of series, each by its name without coatcheck_ and its labels as a scrape
// writes them. Of histograms it is how often something was observed, and the sum where that is a
// number of things.
type figures map[string]float64

var (
	sampleLine = regexp.MustCompile(`(?m)^(coatcheck_[a-z_]+)(\{.*\})? (\S+)$`)
	inSeconds  = regexp.MustCompile(`_seconds(_sum|_bucket)$|_seconds$`)
)

// scrape reads the metrics, when all other requests have been counted.
func (s *service) scrape(t testing.TB) (found figures) {
	t.Helper()
	expect.Eventually(t, "no other request is under way", func() bool {
		found = readFigures(t, string(s.do(t, "GET", "/metrics", "").body))
		return found["http_requests_in_flight"] == 1
	})
	return found
}

func readFigures(t testing.TB, text string) figures {
	t.Helper()
	found := figures{}
	for _, line := range sampleLine.FindAllStringSubmatch(text, -1) {
		value, err := strconv.ParseFloat(line[3], 64)
		expect.NoError(t, fmt.Sprintf("GET /metrics: line %q", line[0]), err)
		if !strings.HasSuffix(line[1], "_bucket") && (!inSeconds.MatchString(line[1]) || strings.HasSuffix(line[1], "_count")) {
			found[strings.TrimPrefix(line[1], "coatcheck_")+line[2]] = value
		}
	}
	return found
}

// of picks those that are not 0 and whose names begin in one of these ways.
func (f figures) of(beginnings ...string) figures {
	picked := figures{}
	for name, value := range f {
		if value != 0 && slices.ContainsFunc(beginnings, func(beginning string) bool { return strings.HasPrefix(name, beginning) }) {
			picked[name] = value
		}
	}
	return picked
}

// what moves with every request, or by itself.
var everywhere = regexp.MustCompile(`^(http_|redis_(calls|call_|pipeline|pool)|worker_ring|operations_in_doubt)`)

// moved tells how much the series have moved while something was done.
func (s *service) moved(t testing.TB, do func()) figures {
	t.Helper()
	before := s.scrape(t)
	do()
	after := s.scrape(t)
	moves := figures{}
	for name, value := range after {
		if value != before[name] && !everywhere.MatchString(name) {
			moves[name] = value - before[name]
		}
	}
	return moves
}

// wantMoves compares what has moved with what should have: that, and nothing else.
func (s *service) wantMoves(t testing.TB, what string, want figures, do func()) {
	t.Helper()
	expect.Equal(t, "what "+what+" moves", s.moved(t, do), want)
}

func TestMetricsOfTokens(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{Dev: true, PaymentLease: time.Hour}, redisstore.Config{})
	token, claimed := "", api.Claimed{}
	s.wantMoves(t, "an issue", figures{`token_issues_total{outcome="ok"}`: 1}, func() { token = s.issue(t, "") })
	s.wantMoves(t, "a claim", figures{`token_claims_total{outcome="granted"}`: 1}, func() { claimed = s.claim(t, token, forAnHour) })
	again := func(fingerprint string) func() {
		return func() { s.do(t, "POST", "/token/"+token+"/claim", `{"fingerprint":"`+fingerprint+`"}`) }
	}
	s.wantMoves(t, "a second claim", figures{`token_claims_total{outcome="busy"}`: 1}, again("f"))
	s.wantMoves(t, "another request", figures{`token_claims_total{outcome="mismatch"}`: 1}, again("other"))
	lease := "Lease-Token: " + claimed.Lease
	s.wantMoves(t, "a renewal", figures{`token_extensions_total{outcome="ok"}`: 1}, func() { s.do(t, "POST", "/token/"+token+"/extend", `{"lease_ms":3600000}`, lease) })
	s.wantMoves(t, "an answer", figures{`token_completions_total{outcome="ok"}`: 1}, func() { s.do(t, "POST", "/token/"+token+"/complete", `{"status":200}`, lease) })
	s.wantMoves(t, "a replay", figures{`token_claims_total{outcome="replay"}`: 1}, again("f"))
	s.wantMoves(t, "a token that was not issued", figures{`token_claims_total{outcome="unknown"}`: 1}, func() { s.do(t, "POST", "/token/never/claim", `{"fingerprint":"f"}`) })

	silent := s.issue(t, "")
	s.claim(t, silent, `{"fingerprint":"f","lease_ms":100}`)
	expect.Eventually(t, "the claim is in doubt", func() bool { return s.state(t, silent) == "in-doubt" })
	s.wantMoves(t, "a claim of what is in doubt", figures{`token_claims_total{outcome="in_doubt"}`: 1}, func() { s.do(t, "POST", "/token/"+silent+"/claim", `{"fingerprint":"f"}`) })

	pay := func() { s.do(t, "POST", "/payments", payment, "Idempotency-Key: k") }
	s.wantMoves(t, "a guarded request", figures{`token_claims_total{outcome="granted"}`: 1, `token_completions_total{outcome="ok"}`: 1}, pay)
	s.wantMoves(t, "its repeat", figures{`token_claims_total{outcome="replay"}`: 1}, pay)
}

// twoForAnHour asks for a worker id of a pool that has two.
const twoForAnHour = `{"layout":"41/1/21","ttl_ms":3600000}`

func TestMetricsOfWorkers(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{})
	granted := api.WorkerLease{}
	acquire := func(body string) func() { return func() { s.do(t, "POST", "/worker/pool", body) } }
	s.wantMoves(t, "a grant", figures{`worker_grants_total{outcome="granted"}`: 1}, func() {
		granted = must[api.WorkerLease](t, s.service, 201, "POST", "/worker/pool", twoForAnHour)
	})
	at, lease := fmt.Sprintf("/worker/pool/%d", granted.WorkerID), "Lease-Token: "+granted.Lease
	s.wantMoves(t, "another layout", figures{`worker_grants_total{outcome="layout"}`: 1}, acquire(`{"layout":"41/10/12"}`))
	s.wantMoves(t, "the last worker id", figures{`worker_grants_total{outcome="granted"}`: 1}, acquire(""))
	s.wantMoves(t, "one too many", figures{`worker_grants_total{outcome="exhausted"}`: 1}, acquire(""))
	s.wantRing(t, figures{"held": 2, "free": 0, "cooling": 0, "quarantined": 0}, figures{"granting": 1, "quarantined": 0, "unseen": 0, "unasked": 0})
	s.wantMoves(t, "a renewal", figures{`worker_renewals_total{outcome="ok"}`: 1}, func() { s.do(t, "PUT", at, "", lease) })
	s.wantMoves(t, "a release", figures{`worker_releases_total{outcome="ok"}`: 1}, func() { s.do(t, "DELETE", at, "", lease) })
	s.wantMoves(t, "a renewal of what is lost", figures{`worker_renewals_total{outcome="lost"}`: 1}, func() { s.do(t, "PUT", at, "", lease) })
	s.wantMoves(t, "a release by another", figures{`worker_releases_total{outcome="lost"}`: 1}, func() {
		s.do(t, "DELETE", at, "", "Lease-Token: "+strings.Repeat("a", 22)+".1")
	})
	must[api.WorkerLease](t, s.service, 201, "POST", "/worker/wide", forAnHourHeld)
	s.wantRing(t, figures{"held": 2, "free": 1 + 1023, "cooling": 0, "quarantined": 0}, figures{"granting": 2, "quarantined": 0, "unseen": 0, "unasked": 0})

	careful := measureOn(t, s.redis, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait, LongestTTL: time.Hour}}, redisstore.Config{})
	expect.NoError(t, "FLUSHALL", s.redis.Client().FlushAll(t.Context()).Err())
	careful.wantMoves(t, "a pool that may be lost", figures{`worker_grants_total{outcome="quarantined"}`: 1}, func() { careful.do(t, "POST", "/worker/pool", twoForAnHour) })
}

// wantRing looks at the rings.
func (s *measured) wantRing(t testing.TB, slots, pools figures) {
	t.Helper()
	s.server.LookAgain()
	found := s.scrape(t)
	gotSlots, gotPools := figures{}, figures{}
	for name, value := range found {
		if state, ok := strings.CutPrefix(name, `worker_ring_slots{state="`); ok {
			gotSlots[strings.TrimSuffix(state, `"}`)] = value
		}
		if state, ok := strings.CutPrefix(name, `worker_ring_pools{state="`); ok {
			gotPools[strings.TrimSuffix(state, `"}`)] = value
		}
	}
	expect.Equal(t, "GET /metrics: worker_ring_slots", gotSlots, slots)
	expect.Equal(t, "GET /metrics: worker_ring_pools", gotPools, pools)
}

// After a restart the last of the state may be missing: who holds goes on, and what is free is not
// granted.
func TestRingsInQuarantineAreTold(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, keeping...)
	s := &measured{measureOn(t, redis, server.Config{}, redisstore.Config{Timeout: storePatience}), redis}
	must[api.WorkerLease](t, s.service, 201, "POST", "/worker/pool", `{"layout":"41/2/20","ttl_ms":3600000}`)
	s.wantRing(t, figures{"held": 1, "free": 3, "cooling": 0, "quarantined": 0}, figures{"granting": 1, "quarantined": 0, "unseen": 0, "unasked": 0})
	redis.Kill()
	redis.Restart()
	s.wantReady(t)
	s.wantRing(t, figures{"held": 1, "free": 0, "cooling": 0, "quarantined": 3}, figures{"granting": 0, "quarantined": 0, "unseen": 0, "unasked": 1})
}

// Redis is away: what the rings were a moment ago is told on, and the scrape does not fail.
func TestRingsAreLookedAtOnceInAWhile(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{Timeout: storePatience})
	must[api.WorkerLease](t, s.service, 201, "POST", "/worker/pool", twoForAnHour)
	looks := func() float64 { return s.scrape(t)[`redis_calls_total{outcome="ok",script="worker_get"}`] }
	looks() // that it makes is counted by the next
	expect.Equal(t, "looks at the rings by the second scrape", looks(), 1)
	expect.Equal(t, "looks at the rings by the third scrape", looks(), 1)
	s.redis.Stop()
	s.server.LookAgain()
	s.scrape(t)
	found := s.scrape(t)
	expect.Equal(t, "slots that are held, with Redis away", found[`worker_ring_slots{state="held"}`], 1)
	expect.Equal(t, "looks at the rings with Redis away", found[`redis_calls_total{outcome="unavailable",script="name_list"}`], 1)
}

func TestMetricsOfLocks(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{RequestTimeout: 2 * time.Hour}, redisstore.Config{})
	first := api.LockGranted{}
	s.wantMoves(t, "a lock", figures{`lock_requests_total{outcome="granted"}`: 1, "lock_held": 1}, func() { first = s.lock(t, "l", forAnHourHeld) })
	s.wantMoves(t, "a lock that is held", figures{`lock_requests_total{outcome="held"}`: 1}, func() { s.do(t, "POST", "/lock/l", "") })
	s.wantMoves(t, "a wait in vain", figures{`lock_requests_total{outcome="held"}`: 1, `lock_wait_seconds_count{outcome="not_granted"}`: 1}, func() {
		s.do(t, "POST", "/lock/l", `{"wait_ms":20}`)
	})
	lease := "Lease-Token: " + first.Lease
	s.wantMoves(t, "a renewal", figures{`lock_renewals_total{outcome="ok"}`: 1}, func() { s.do(t, "PUT", "/lock/l", forAnHourHeld, lease) })

	second := make(chan api.LockGranted, 1)
	s.wantMoves(t, "a lock that is handed over", figures{
		`lock_requests_total{outcome="granted"}`: 1, `lock_wait_seconds_count{outcome="granted"}`: 1, `lock_releases_total{outcome="ok"}`: 1, "lock_hold_seconds_count": 1,
	}, func() {
		var waiter sync.WaitGroup
		waiter.Go(func() { second <- s.lock(t, "l", anHoursWait) })
		expect.Eventually(t, "one waits", func() bool { return readFigures(t, string(s.do(t, "GET", "/metrics", "").body))["lock_waiting"] == 1 })
		expect.Eventually(t, "it stands in line", func() bool { return s.lockInfo(t, "l").Waiting == 1 })
		if text := string(s.do(t, "GET", "/metrics", "").body); strings.Contains(text, "coatcheck_lock_longest_wait_seconds 0\n") {
			t.Errorf("GET /metrics: lock_longest_wait_seconds: got 0, want more, since one waits:\n%s", text)
		}
		s.unlock(t, first)
		waiter.Wait()
	})
	held := <-second
	s.wantMoves(t, "a lock taken by force", figures{"lock_breaks_total": 1}, func() { s.do(t, "DELETE", "/lock/l?force="+strconv.FormatInt(held.Fence, 10), "") })
	lease = "Lease-Token: " + held.Lease
	s.wantMoves(t, "a renewal of what is lost", figures{`lock_renewals_total{outcome="lost"}`: 1, "lock_held": -1}, func() { s.do(t, "PUT", "/lock/l", "", lease) })
	s.wantMoves(t, "a release of what is lost", figures{`lock_releases_total{outcome="lost"}`: 1}, func() { s.do(t, "DELETE", "/lock/l", "", lease) })
	s.lock(t, "permits", `{"permits":2,"ttl_ms":3600000}`)
	s.wantMoves(t, "another number of permits", figures{`lock_requests_total{outcome="capacity"}`: 1}, func() { s.do(t, "POST", "/lock/permits", `{"permits":3}`) })
	text := string(s.do(t, "GET", "/metrics", "").body)
	expect.Contains(t, "GET /metrics without waiters", text, "\ncoatcheck_lock_waiting 0\n", "\ncoatcheck_lock_longest_wait_seconds 0\n")
}

func TestMetricsOfCountersAndIDs(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{})
	const clients = 50
	moves := s.moved(t, func() {
		var all sync.WaitGroup
		for range clients {
			all.Go(func() { must[api.Incremented](t, s.service, 200, "POST", "/incr/k?by=3", "") })
		}
		all.Wait()
	})
	want := figures{"counter_increments_total": clients, "counter_values_total": 3 * clients, `counter_openings_total{outcome="ok"}`: 1}
	expect.Equal(t, fmt.Sprintf("what %d increments at once move", clients), moves, want)
	found := s.scrape(t)
	sent := found[`redis_calls_total{outcome="ok",script="incrby"}`]
	wantBetween(t, fmt.Sprintf("INCRBYs sent for %d requests", clients), sent, 1, clients)
	wantBetween(t, "durations of INCRBYs", found[`redis_call_duration_seconds_count{script="incrby"}`], 0, sent)
	if calls, pipelines := found["redis_pipeline_calls_sum"], found["redis_pipeline_calls_count"]; pipelines < 1 || calls < pipelines || found["redis_pipeline_duration_seconds_count"] < 1 {
		t.Errorf("got %v, want a pipeline at least with its duration, and a call at least in each", found.of("redis_pipeline"))
	}
	repeat := func() { s.do(t, "POST", "/incr/k", "", "Idempotency-Key: once") }
	s.wantMoves(t, "a repeatable increment", figures{"counter_increments_total": 1, "counter_values_total": 1, `counter_repeatable_total{outcome="ok"}`: 1}, repeat)
	s.wantMoves(t, "its repeat", figures{"counter_increments_total": 1, "counter_values_total": 1, `counter_repeatable_total{outcome="again"}`: 1}, repeat)

	s.wantMoves(t, "ULIDs", figures{`ids_total{kind="ulid"}`: 2}, func() { s.do(t, "GET", "/id/ulid?n=2", "") })
	s.wantMoves(t, "TypeIDs", figures{`ids_total{kind="typeid"}`: 3}, func() { s.do(t, "GET", "/id/typeid?n=3", "") })
	s.wantMoves(t, "UUIDs", figures{`ids_total{kind="uuid"}`: 4}, func() { s.do(t, "GET", "/id/uuid?n=4", "") })
	s.wantMoves(t, "snowflake ids", figures{`ids_total{kind="snowflake"}`: 5, `worker_grants_total{outcome="granted"}`: 1, `worker_stamping{state="held"}`: 1}, func() {
		s.do(t, "GET", "/id/snowflake/p?n=5", "")
	})
	s.do(t, "GET", "/id/segment/t?n=3", "")
	expect.Eventually(t, "a segment was fetched", func() bool {
		found := s.scrape(t)
		return found[`ids_total{kind="segment"}`] == 3 && found["segment_tags"] == 1 && found[`segment_fetches_total{outcome="ok"}`] >= 1 &&
			found[`segment_fetch_duration_seconds_count{outcome="ok"}`] == found[`segment_fetches_total{outcome="ok"}`]
	})
}

// The source fails after its first range: what was fetched is used up, and then callers starve.
func TestMetricsOfSegmentsThatStarve(t *testing.T) {
	t.Parallel()
	var lock sync.Mutex
	taken := 0
	source := sourceFunc(func(string, int64) rangeOrError {
		lock.Lock()
		defer lock.Unlock()
		if taken++; taken > 1 {
			return rangeOrError{err: redisstore.ErrUnavailable}
		}
		return rangeOrError{got: segment.Range{Lo: 1, Hi: 11}}
	})
	s := measure(t, server.Config{SegmentSource: source, RequestTimeout: 2 * time.Second}, redisstore.Config{})
	s.do(t, "GET", "/id/segment/t?n=10", "")
	checkProblem(t, s.do(t, "GET", "/id/segment/t", ""), api.StoreUnavailable)
	found := s.scrape(t)
	failed := found[`segment_fetches_total{outcome="failed"}`]
	wantBetween(t, "fetches that failed", failed, 1, 1e6)
	expect.Equal(t, "GET /metrics after a source has failed", found.of("segment_starvations", "segment_fetches", "ids"), figures{
		"segment_starvations_total": 1, `segment_fetches_total{outcome="ok"}`: 1, `segment_fetches_total{outcome="failed"}`: failed, `ids_total{kind="segment"}`: 10,
	})
}

func TestMetricsOfLosses(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{Timeout: storePatience})
	must[api.Readiness](t, s.service, 200, "GET", "/readyz", "")
	must[api.Incremented](t, s.service, 200, "POST", "/incr/k", "")
	marker, connection := `redis_incarnation_changes_total{seen_by="marker"}`, `redis_incarnation_changes_total{seen_by="call"}`
	s.wantMoves(t, "FLUSHALL", figures{marker: 1}, func() {
		expect.NoError(t, "FLUSHALL", s.redis.Client().FlushAll(t.Context()).Err())
		s.server.ForgetHealth()
		s.do(t, "GET", "/readyz", "")
	})
	s.redis.Stop()
	s.wantMoves(t, "a Redis that is away", figures{`token_issues_total{outcome="failed"}`: 1}, func() { s.do(t, "POST", "/token", "") })
	found := s.scrape(t)
	for _, name := range []string{`redis_calls_total{outcome="unavailable",script="token_issue"}`, `http_problems_total{code="store-unavailable"}`} {
		expect.Equal(t, "GET /metrics after an issue with Redis away: "+name, found[name], 1)
	}
	s.redis.RestartEmpty()
	s.wantReady(t)
	expect.Equal(t, "GET /metrics after FLUSHALL and a restart", s.scrape(t).of("redis_incarnation_changes"), figures{connection: 1, marker: 2})
}

func TestMetricsOfWritesThatNoReplicaConfirms(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{Ack: 1, Timeout: storePatience, AckTimeout: 50 * time.Millisecond})
	s.wantMoves(t, "a write", figures{"redis_wait_shortfalls_total": 1, `token_issues_total{outcome="failed"}`: 1}, func() {
		checkProblem(t, s.do(t, "POST", "/token", ""), api.OutcomeUnknown)
	})
	unknown := `redis_calls_total{outcome="unknown",script="token_issue"}`
	expect.Equal(t, "GET /metrics: "+unknown, s.scrape(t)[unknown], 1)
}

func TestMetricsOfRequests(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{})
	before := s.scrape(t)
	s.do(t, "GET", "/counter/none", "")
	s.do(t, "POST", "/incr/k", "")
	s.do(t, "BREW", "/incr/k", "")
	s.do(t, "GET", "/nowhere", "")
	s.do(t, "GET", "/incr/k/more", "")
	after := s.scrape(t)
	for name, want := range (figures{
		`http_requests_total{method="GET",route="/counter/{key}",status="404"}`: 1, `http_requests_total{method="POST",route="/incr/{key}",status="200"}`: 1,
		`http_request_duration_seconds_count{route="/counter/{key}"}`: 1, `http_problems_total{code="not-found"}`: 3,
		`redis_calls_total{outcome="ok",script="counter_begin"}`: 1,
	}) {
		expect.Equal(t, "what five requests move: "+name, after[name]-before[name], want)
	}
	text := string(s.do(t, "GET", "/metrics", "").body)
	expect.Contains(t, "GET /metrics", text,
		`coatcheck_build_info{go="go`, `version="v1.2.3"} 1`, `method="other",`, `route="-",status="404"`, `coatcheck_redis_pool_connections{state="idle"}`, "go_goroutines ",
		"process_resident_memory_bytes ", "coatcheck_redis_pool_wait_seconds_total ")
	if strings.Contains(text, "BREW") {
		t.Errorf("GET /metrics: the method BREW, which a client invented, is a label:\n%s", text)
	}
}

// Everything that a request can hold holds the same word, which no metric may.
func TestNoMetricHoldsWhatAClientSent(t *testing.T) {
	t.Parallel()
	store := metrics.NewService("v1.2.3")
	config := server.Config{Metrics: store, Dev: true, Store: storetest.Open(t, redisstore.Config{Observers: []observe.Observer{store.Observer()}})}
	s := serveKeyed(t, config, map[string]access.Record{"zebra": {Role: access.Admin}})
	who := s.bearer("zebra")
	secrets := []string{s.keys["zebra"].Secret}
	do := func(method, path, body string, header ...string) answer {
		return s.do(t, method, path, body, append(header, who...)...)
	}

	token := decode[api.TokenIssued](t, do("POST", "/token", `{"scope":"zebra"}`), 201).Token
	claimed := decode[api.Claimed](t, do("POST", "/token/"+token+"/claim", `{"fingerprint":"zebra"}`), 200)
	do("POST", "/token/"+token+"/complete", `{"status":200}`, "Lease-Token: "+claimed.Lease)
	worker := decode[api.WorkerLease](t, do("POST", "/worker/zebra", `{"identity":"zebra"}`), 201)
	do("PUT", "/worker/zebra/0", "", "Lease-Token: zebra")
	lock := decode[api.LockGranted](t, do("POST", "/lock/zebra", `{"owner":"zebra"}`), 201)
	do("POST", "/lock/zebra", `{"owner":"zebra","wait_ms":1}`)
	do("DELETE", "/lock/zebra", "", "Lease-Token: "+lock.Lease)
	for _, path := range []string{
		"/incr/zebra", "/incr/zebra?zebra=zebra", "/counter/zebra", "/id/snowflake/zebra", "/id/segment/zebra", "/id/decode/zebra", "/lock/zebra", "/worker/zebra", "/zebra",
		"/incr/zebra/zebra", "/api/segment/get/zebra", "/problems/zebra", "/console/zebra", "/token/zebra", "/worker/zebra/zebra", "/%7Azebra", "/incr/zebra%00",
	} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "ZEBRA"} {
			do(method, path, `{"zebra":"zebra"}`, "Idempotency-Key: zebra", "X-Request-Id: zebra", "Lease-Token: zebra", "Zebra: zebra")
		}
	}
	do("POST", "/payments", `{"amount":1,"currency":"EUR","to":"zebra"}`, "Idempotency-Key: zebra")
	s.server.LookAgain()
	text := string(do("GET", "/metrics", "").body)
	for _, secret := range append(secrets, token, claimed.Lease, worker.Lease, lock.Lease) {
		if strings.Contains(text, secret) {
			t.Errorf("a metric holds the secret %s", secret)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(strings.ToLower(line), "zebra") {
			t.Errorf("a metric holds what a client sent: %s", line)
		}
	}
	found := readFigures(t, text)
	expect.Equal(t, "locks granted", found[`lock_requests_total{outcome="granted"}`], 1)
	expect.Equal(t, "locks held to their release", found["lock_hold_seconds_count"], 1)
	wantBetween(t, "worker ids granted", found[`worker_grants_total{outcome="granted"}`], 1, 1e6)
}

// A label takes no value without bound: statuses are those of HTTP, and routes those of the
// service.
func TestLabelsHaveFewValues(t *testing.T) {
	t.Parallel()
	s := measure(t, server.Config{}, redisstore.Config{})
	routes := []string{"-"}
	for _, route := range s.server.Routes() {
		routes = append(routes, route.Path)
	}
	for _, c := range writing {
		s.do(t, c.method, c.path, c.body, c.header...)
	}
	s.scrape(t)
	for _, label := range regexp.MustCompile(`\b([a-z_]+)="([^"]*)"`).FindAllStringSubmatch(string(s.do(t, "GET", "/metrics", "").body), -1) {
		name, value := label[1], label[2]
		status, err := strconv.Atoi(value)
		switch {
		case name == "route" && !slices.Contains(routes, value):
			t.Errorf("GET /metrics: got the label route=%q, want one of the service's routes", value)
		case name == "status" && (err != nil || http.StatusText(status) == ""):
			t.Errorf("GET /metrics: got the label status=%q, want a status of HTTP", value)
		}
	}
}
