package monitoring_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// faults makes the fault of each alert, and mends it, around the scrapes of a real program on a
// real Redis. Nothing is made up but the time: see [scene.series]. An alert may have several. What
// has no alert is no fault, and fires none.
//
// The source of segments is a part of the test in four of them: an own source of a Go program that
// fails, is slow or goes back, as a database does after a restore.
var faults = []struct {
	alert string
	make  func(s *scene)
}{
	{"CoatcheckDown", func(s *scene) {
		s.service(server.Config{})
		end := s.listens()
		s.scrape()
		end()
		s.scrape()
		s.service(server.Config{}) // it is started again
		s.scrape()
	}},
	{"CoatcheckRequestsFail", func(s *scene) {
		p := s.service(server.Config{})
		p.want(200, "POST", "/incr/orders", "")
		s.scrape()
		s.redis.Kill()
		p.do(3, "POST", "/incr/orders", "")
		s.scrape()
		s.redis.Restart()
		p.want(200, "POST", "/incr/orders", "")
		s.scrape()
	}},
	{"CoatcheckInternalErrors", func(s *scene) {
		source := &source{}
		p := s.service(server.Config{SegmentSource: source})
		p.want(200, "GET", "/id/segment/orders", "")
		s.scrape()
		source.set(errors.New("an error of no class"))
		p.want(500, "GET", "/id/segment/invoices", "")
		s.scrape()
		source.set(nil)
		p.want(200, "GET", "/id/segment/invoices", "")
		s.scrape()
	}},

	{"CoatcheckRedisUnavailable", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		s.redis.Kill()
		for range 3 {
			_, _ = l.counters.Incr(s.Context(), "orders")
		}
		s.scrape()
		s.redis.Restart()
		l.incr("orders", counter.Request{})
		s.scrape()
	}},
	{"CoatcheckOutcomesUnknown", func(s *scene) {
		proxy := redistest.StartProxy(s, s.redis.Addr(), nil)
		s.url = proxy.URL()
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		proxy.SwallowAnswers()
		_, err := l.counters.Incr(s.Context(), "orders")
		expect.Equal(s, "Incr without an answer fails", err != nil, true)
		s.scrape()
		s.scrape() // nobody asks any more
	}},
	{"CoatcheckReplicasBehind", func(s *scene) {
		replica := redistest.Start(s, "--replicaof", "127.0.0.1 "+port(s.redis))
		s.ack = 1
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		replica.Pause()
		_, err := l.counters.Incr(s.Context(), "orders")
		expect.Equal(s, "Incr that is not confirmed fails", err != nil, true)
		s.scrape()
		replica.Resume()
		l.incr("orders", counter.Request{})
		s.scrape()
	}},
	{"CoatcheckIncarnationChanged", func(s *scene) {
		p := s.service(server.Config{})
		p.want(200, "GET", "/readyz", "")
		s.scrape()
		do(s, s.redis, "FLUSHALL")
		expect.Eventually(s, "the marker is found to be gone", func() bool {
			p.do(1, "GET", "/readyz", "")
			s.scrapes = s.scrapes[:1]
			s.scrape()
			return s.scrapes[1][`coatcheck_redis_incarnation_changes_total{seen_by="marker"}`] > 0
		})
		s.scrape()
	}},
	{"CoatcheckRedisSlow", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		do(s, s.redis, "CLIENT", "PAUSE", "300", "WRITE")
		l.incr("orders", counter.Request{})
		s.scrape()
		l.incr("orders", counter.Request{})
		s.scrape()
	}},
	{"CoatcheckConnectionsShort", func(s *scene) {
		s.url += "?pool_size=1"
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		s.redis.Pause()
		var calls sync.WaitGroup
		for i := range 20 {
			calls.Go(func() {
				_, _ = l.tokens.Claim(s.Context(), idempotency.Key{Principal: "p", Scope: "s", ID: fmt.Sprint(i)}, idempotency.ClaimOptions{Fingerprint: "f"})
			})
			calls.Go(func() { _, _ = l.locks.TryAcquire(s.Context(), fmt.Sprint(i), lock.Request{}) })
		}
		calls.Wait()
		s.scrape()
		s.redis.Resume()
		l.incr("orders", counter.Request{})
		s.scrape()
	}},

	{"CoatcheckTokensInDoubt", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		l.tokens.Middleware(idempotency.Route{Name: "POST /payments"})
		l.doubts()
	}},
	// a program that only shares the Redis has none of them
	{"CoatcheckTokensInDoubt", func(s *scene) { s.library(workerlease.Config{}, &source{}).doubts() }},
	{"CoatcheckAnswersNotRecorded", func(s *scene) {
		l, key := s.library(workerlease.Config{}, &source{}), idempotency.Key{Principal: "p", Scope: "payments", ID: "1"}
		options := idempotency.ClaimOptions{Fingerprint: "f", Policy: idempotency.PolicyTakeover, Lease: idempotency.MinLease}
		s.scrape()
		first, err := l.tokens.Claim(s.Context(), key, options)
		expect.NoError(s, "the first claim", err)
		expect.Eventually(s, "another attempt takes over", func() bool {
			_, err := l.tokens.Claim(s.Context(), key, options)
			return err == nil
		})
		err = l.tokens.Complete(s.Context(), key, first.Grant.LeaseToken, idempotency.Answer{Status: 200})
		expect.Error(s, "Complete of the attempt that was replaced", err, idempotency.ErrSuperseded)
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckTokenBacklogDropped", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		pay := l.tokens.Middleware(idempotency.Route{Name: "pay"})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.redis.Kill() }))
		s.scrape()
		program{s, pay}.do(1, "POST", "/payments", "", "Idempotency-Key: 1")
		ended, cancel := context.WithCancel(s.Context())
		cancel()
		expect.Equal(s, "Close says that an answer is not recorded", l.tokens.Close(ended) != nil, true)
		s.scrape()
		s.scrape()
	}},

	{"CoatcheckWorkerIdsExhausted", exhaust},
	{"CoatcheckWorkerIdsScarce", exhaust},
	{"CoatcheckLayoutEnds", layoutWith(100*24*time.Hour + time.Hour)},
	{"CoatcheckLayoutEndsSoon", layoutWith(20*24*time.Hour + time.Hour)},
	{"CoatcheckLayoutEnded", layoutWith(5*time.Hour + time.Minute)},
	{"CoatcheckLayoutEnded", layoutWith(-time.Hour)},
	{"CoatcheckPoolsQuarantined", func(s *scene) {
		l := s.library(workerlease.Config{LongestTTL: workerlease.MinTTL, Skew: time.Millisecond}, &source{})
		s.scrape()
		_, err := l.pools.Acquire(s.Context(), "orders", workerlease.Request{TTL: workerlease.MinTTL})
		expect.Error(s, "Acquire of a pool that may have been lost", err, workerlease.ErrQuarantined)
		s.scrape()
		expect.Eventually(s, "the quarantine is over", func() bool {
			_, err := l.pools.Acquire(s.Context(), "orders", workerlease.Request{TTL: workerlease.MinTTL})
			return err == nil
		})
		s.scrape()
	}},
	{"CoatcheckWorkerIdsLost", func(s *scene) {
		l := s.library(workerlease.Config{NewPools: workerlease.NewPoolsTrust}, &source{})
		lease := l.takeAll(workerlease.MinTTL)[0]
		s.scrape()
		expect.Eventually(s, "the lease has ended, and its holder was paused", func() bool {
			_, err := l.pools.Acquire(s.Context(), "orders", workerlease.Request{})
			return err == nil
		})
		_, err := l.pools.Renew(s.Context(), lease, 0)
		expect.Error(s, "Renew after the lease has ended", err, workerlease.ErrLost)
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckStampsNothing", func(s *scene) {
		other := s.library(workerlease.Config{NewPools: workerlease.NewPoolsTrust}, &source{})
		s.service(server.Config{})
		s.scrape()
		held := other.takeAll(10 * time.Second)
		p := s.service(server.Config{IDPool: "orders", Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
		p.want(503, "GET", "/id/snowflake", "")
		s.scrape()
		other.giveBack(held)
		p.want(200, "GET", "/id/snowflake", "")
		s.scrape()
	}},

	{"CoatcheckLockWaitsLong", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		s.aging = true
		held, err := l.locks.Acquire(s.Context(), "report", lock.Request{})
		expect.NoError(s, "Acquire", err)
		s.scrape()
		var waits sync.WaitGroup
		waits.Go(func() {
			next, err := l.locks.Acquire(s.Context(), "report", lock.Request{})
			expect.NoError(s, "Acquire after a wait", err)
			expect.NoError(s, "Release", next.Release(s.Context()))
		})
		expect.Eventually(s, "one waits", func() bool {
			s.scrapes = s.scrapes[:1]
			s.scrape()
			return s.scrapes[1]["coatcheck_lock_waiting{}"] == 1
		})
		expect.NoError(s, "Release", held.Release(s.Context()))
		waits.Wait()
		s.scrape()
	}},
	{"CoatcheckLocksLost", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		grant, err := l.locks.TryGrant(s.Context(), "report", lock.Request{})
		expect.NoError(s, "TryGrant", err)
		s.scrape()
		_, err = l.locks.Break(s.Context(), "report", grant.Fence)
		expect.NoError(s, "Break", err)
		_, err = l.locks.Renew(s.Context(), grant)
		expect.Error(s, "Renew of a lock that was broken", err, lock.ErrLost)
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckLocksInDoubt", func(s *scene) {
		p := s.service(server.Config{Locks: lock.Config{AfterLoss: lock.AfterLossWait, LongestTTL: 5 * time.Second}})
		p.want(201, "POST", "/lock/report", "{}")
		s.scrape()
		do(s, s.redis, "FLUSHALL")
		p.want(503, "POST", "/lock/invoices", "{}")
		s.scrape()
		s.scrape() // much later the leases that may be open have ended
	}},

	{"CoatcheckCountersMoved", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		s.restart()
		l.incr("orders", counter.Request{})
		s.scrape()
		l.incr("orders", counter.Request{})
		s.scrape()
	}},
	{"CoatcheckCountersRefused", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{Limit: 999_999})
		s.scrape()
		s.restart()
		expect.Eventually(s, "the counter is behind", func() bool {
			_, err := l.counters.Add(s.Context(), "orders", counter.Request{Limit: 999_999})
			return errors.Is(err, counter.ErrBehind)
		})
		s.scrape()
		expect.NoError(s, "Set", l.counters.Set(s.Context(), "orders", 1, counter.SetOptions{Back: true}))
		l.incr("orders", counter.Request{Limit: 999_999})
		s.scrape()
	}},
	{"CoatcheckCountersRefused", func(s *scene) {
		l := s.library(workerlease.Config{}, &source{})
		l.incr("orders", counter.Request{})
		s.scrape()
		do(s, s.redis, "FLUSHALL")
		expect.Eventually(s, "the counter is held off", func() bool {
			_, err := l.counters.Incr(s.Context(), "orders")
			return errors.Is(err, counter.ErrHoldOff)
		})
		s.scrape()
		l.incr("orders", counter.Request{})
		s.scrape()
	}},
	{"", func(s *scene) { // a count of tries that is used up is refused, also after a restart
		l := s.library(workerlease.Config{}, &source{})
		l.incr("tries", counter.Request{Limit: 1})
		s.scrape()
		s.restart()
		expect.Eventually(s, "the limit is reached", func() bool {
			_, err := l.counters.Add(s.Context(), "tries", counter.Request{Limit: 1})
			return errors.Is(err, counter.ErrLimit)
		})
		s.scrape()
		s.scrape()
	}},
	{"", func(s *scene) { // nobody asks for a pool after an ordinary restart
		l := s.library(workerlease.Config{NewPools: workerlease.NewPoolsTrust}, &source{})
		_, err := l.pools.Acquire(s.Context(), "orders", workerlease.Request{})
		expect.NoError(s, "Acquire", err)
		s.scrape()
		s.restart()
		expect.Eventually(s, "Redis answers", func() bool { _, _, err := l.pools.List(s.Context(), "", "", 1); return err == nil })
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckSegmentsStarve", func(s *scene) {
		source := &source{}
		l := s.library(workerlease.Config{}, source)
		l.id("orders")
		s.scrape()
		source.slow(20*time.Millisecond, 1)
		for range 10 {
			l.id("invoices")
		}
		s.scrape()
		source.slow(0, 1000)
		l.id("invoices")
		s.scrape()
	}},
	{"CoatcheckSegmentsWentBack", func(s *scene) {
		source := &source{step: 1}
		l := s.library(workerlease.Config{}, source)
		l.id("orders")
		s.scrape()
		source.restore()
		_, err := l.segments.Next(s.Context(), "orders")
		for err == nil {
			_, err = l.segments.Next(s.Context(), "orders")
		}
		expect.Error(s, "an id of a source that has gone back", err, segment.ErrWentBack)
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckSegmentFetchesFail", func(s *scene) {
		source := &source{}
		l := s.library(workerlease.Config{}, source)
		l.id("orders")
		s.scrape()
		source.set(errors.New("the database is away"))
		for _, tag := range []string{"invoices", "refunds", "carts"} {
			_, err := l.segments.Next(s.Context(), tag)
			expect.Equal(s, "an id of a source that is away fails", err != nil, true)
		}
		s.scrape()
		source.set(nil)
		expect.Eventually(s, "there are ids again", func() bool { _, err := l.segments.Next(s.Context(), "invoices"); return err == nil })
		s.scrape()
	}},

	{"CoatcheckGatewayUpstreamFails", func(s *scene) {
		p, _, _ := s.gateway("http://127.0.0.1:1", payments)
		s.scrape()
		p.do(3, "POST", "/payments", "", "Idempotency-Key: 1")
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckGatewayResolverFails", func(s *scene) {
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusNotFound)
		}))
		s.Cleanup(upstream.Close)
		p, g, _ := s.gateway(upstream.URL, resolved)
		s.scrape()
		p.do(1, "POST", "/payments", "", "Idempotency-Key: 1")
		expect.Eventually(s, "the service was asked in vain", func() bool {
			s.scrapes = s.scrapes[:1]
			s.scrape()
			return s.scrapes[1][`coatcheck_gateway_resolutions_total{decision="in_vain"}`] > 0
		})
		expect.NoError(s, "Close", g.Close(s.Context()))
		s.scrape()
	}},
	{"CoatcheckGatewayKeyUnguarded", func(s *scene) {
		upstream := httptest.NewServer(http.NotFoundHandler())
		s.Cleanup(upstream.Close)
		p, _, _ := s.gateway(upstream.URL, unguarded)
		s.scrape()
		p.do(1, "POST", "/carts", "", "Idempotency-Key: 1")
		s.scrape()
		s.scrape()
	}},
	{"CoatcheckGatewayRoutesRefused", func(s *scene) {
		_, g, file := s.gateway("http://127.0.0.1:1", payments)
		s.scrape()
		expect.NoError(s, "WriteFile", os.WriteFile(file, []byte("routes: [{match: POST}]"), 0o600))
		expect.Equal(s, "Reload of a wrong file fails", g.Reload() != nil, true)
		s.scrape()
		expect.NoError(s, "WriteFile", os.WriteFile(file, []byte(payments), 0o600))
		expect.NoError(s, "Reload", g.Reload())
		s.scrape()
	}},
}

// Routes files of a gateway.
const (
	payments  = "routes: [{match: POST /payments}]"
	resolved  = `routes: [{match: POST /payments, resolve: "PUT /operations/{operation}"}]`
	unguarded = "routes: [{match: POST /carts, guard: false}]"
)

// twoIDs is the shape of a pool with two worker ids.
var twoIDs = workerlease.Shape{Layout: "41/1/21"}

func exhaust(s *scene) {
	l := s.library(workerlease.Config{NewPools: workerlease.NewPoolsTrust}, &source{})
	s.scrape()
	held := l.takeAll(0)
	s.scrape()
	l.giveBack(held)
	s.scrape()
}

// takeAll leases all worker ids of the pool orders.
func (l *library) takeAll(ttl time.Duration) (held []workerlease.Lease) {
	l.Helper()
	for {
		lease, err := l.pools.Acquire(l.Context(), "orders", workerlease.Request{Shape: twoIDs, TTL: ttl})
		if errors.Is(err, workerlease.ErrExhausted) {
			return held
		}
		expect.MustEqual(l, "error of Acquire", err, nil)
		held = append(held, lease)
	}
}

func (l *library) giveBack(held []workerlease.Lease) {
	l.Helper()
	for _, lease := range held {
		expect.NoError(l, "Release", l.pools.Release(l.Context(), "orders", lease.WorkerID, lease.Token, lease.NotBefore))
	}
}

// layoutWith is the fault of a layout that ends after a time, until the pool has a wider one.
func layoutWith(left time.Duration) func(s *scene) {
	return func(s *scene) {
		l := s.library(workerlease.Config{NewPools: workerlease.NewPoolsTrust}, &source{})
		s.scrape()
		epoch := time.Now().Add(left - (1<<40)*time.Millisecond).Truncate(time.Millisecond)
		err := l.pools.Create(s.Context(), "orders", workerlease.Shape{Layout: "40/10/13", Epoch: epoch}, 0)
		expect.NoError(s, "Create", err)
		s.scrape()
		err = l.pools.Replace(s.Context(), "orders", workerlease.Shape{Layout: snowflake.DefaultLayout, Epoch: epoch}, 0)
		expect.NoError(s, "Replace", err)
		s.scrape()
	}
}

// source is a source of segments as a Go program may have one of its own.
type source struct {
	mu    sync.Mutex
	next  map[string]int64
	step  int64 // 0 = 1000
	delay time.Duration
	err   error
}

func (s *source) Take(_ context.Context, tag string, _ int64) (segment.Range, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(s.delay)
	if s.err != nil {
		return segment.Range{}, s.err
	}
	if s.next == nil {
		s.next = map[string]int64{}
	}
	lo, step := s.next[tag], cmp.Or(s.step, 1000)
	s.next[tag] = lo + step
	return segment.Range{Lo: lo, Hi: lo + step, Step: step}, nil
}

func (s *source) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *source) slow(delay time.Duration, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay, s.step = delay, step
}

// restore sets all tags back to the beginning.
func (s *source) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.next)
}

// incr adds to a counter as soon as that succeeds.
func (l *library) incr(key string, request counter.Request) {
	l.Helper()
	expect.Eventually(l, "an increment of "+key, func() bool { _, err := l.counters.Add(l.Context(), key, request); return err == nil })
}

func (l *library) id(tag string) {
	l.Helper()
	_, err := l.segments.Next(l.Context(), tag)
	expect.NoError(l, "an id of "+tag, err)
}

// restart restarts Redis in order, which does not prove that it has kept all.
func (s *scene) restart() {
	s.redis.Stop()
	s.redis.Restart()
}

func do(t testing.TB, server *redistest.Server, words ...any) {
	t.Helper()
	expect.NoError(t, fmt.Sprint(words...), server.Client().Do(t.Context(), words...).Err())
}

func port(server *redistest.Server) string {
	_, port, _ := strings.Cut(server.Addr(), ":")
	return port
}

// doubts has three payments in doubt, which are then settled.
func (l *library) doubts() {
	l.scrape()
	fallSilent(l.T, l.tokens, 3)
	l.scrape()
	found, err := l.tokens.Doubts(l.Context())
	expect.NoError(l, "Doubts", err)
	for _, operation := range found.Oldest {
		err := l.tokens.Settle(l.Context(), operation.Name, idempotency.Settlement{Decision: idempotency.DecisionRefused})
		expect.NoError(l, "Settle", err)
	}
	l.scrape()
}
