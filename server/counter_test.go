package server_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestCountersAreSetReadListedAndRemoved(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		for _, value := range []int64{5, 9007199254740993, -9223372036854775808, 0, 9223372036854775806} {
			want := api.Counter{Key: "k", Value: value}
			set := s.do(t, "PUT", "/counter/k?back=true", fmt.Sprintf(`{"value":%d}`, value))
			expect.Equal(t, set.asked, decode[api.Counter](t, set, 200), want)
			set.wantHeader(t, "Cache-Control", "no-store")
			after := fmt.Sprint(" after the counter was set to ", value)
			expect.Equal(t, "GET /counter/k"+after, must[api.Counter](t, s, 200, "GET", "/counter/k", ""), want)
			expect.Equal(t, "GET /incr/k"+after, must[api.Incremented](t, s, 200, "GET", "/incr/k", ""),
				api.Incremented{Key: "k", Value: value + 1, First: value + 1})
		}
		checkProblem(t, s.do(t, "POST", "/incr/k", ""), api.CounterOverflow)
		removed := s.do(t, "DELETE", "/counter/k", "")
		decode[nothing](t, removed, 204)
		removed.wantHeader(t, "Cache-Control", "no-store")
		checkProblem(t, s.do(t, "GET", "/counter/k", ""), api.NotFound)
		checkProblem(t, s.do(t, "DELETE", "/counter/k", ""), api.NotFound)
		expect.Equal(t, "POST /incr/k?by=3 after the counter was removed",
			must[api.Incremented](t, s, 200, "POST", "/incr/k?by=3", ""), api.Incremented{Key: "k", Value: 3, First: 1})
		s.do(t, "PUT", "/counter/k?back=true", `{"value":-7}`, "Accept: text/plain").wantBody(t, "-7\n")
		text := s.do(t, "GET", "/counter/k", "", "Accept: text/plain")
		text.wantBody(t, "-7\n")
		expect.Contains(t, text.asked+": Content-Type", text.header.Get("Content-Type"), "text/plain")
	})
}

func TestCountersAreListedByPages(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	f := newFixture(t, store)
	f.s.do(t, "GET", "/counter?prefix=none", "").wantBody(t, `{"counters":[]}`+"\n")
	for i := range 7 {
		must[api.Counter](t, f.s, 200, "PUT", fmt.Sprint("/counter/p:", i), fmt.Sprintf(`{"value":%d}`, i))
	}
	f.put(t, store, "p:3", "SET", "text")
	var told []string
	for cursor, pages := "", 0; pages < 10; pages++ {
		page := must[api.Counters](t, f.s, 200, "GET", "/counter?prefix=p:&n=3&cursor="+cursor, "")
		for _, one := range page.Counters {
			value := "null"
			if one.Value != nil {
				value = strconv.FormatInt(*one.Value, 10)
			}
			told = append(told, one.Key+"="+value+string(one.Error))
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	expect.Equal(t, "GET /counter?prefix=p:&n=3, page by page", strings.Join(told, " "), "p:0=0 p:1=1 p:2=2 p:3=nullnot-an-integer p:4=4 p:5=5 p:6=6")
}

func TestCounterWithAnEnd(t *testing.T) {
	store := storetest.Redis(t)
	s := serve(t, server.Config{Store: store})
	left := func(key string) time.Duration {
		t.Helper()
		left, err := run(t, store, "return {'ok', tostring(redis.call('PTTL', KEYS[1]))}", onstore.Key(store, "counter", key)).Number(0)
		expect.NoError(t, "PTTL of the counter "+key, err)
		return time.Duration(left) * time.Millisecond
	}
	must[api.Incremented](t, s, 200, "POST", "/incr/daily?ttl_ms=3600000", "")
	must[api.Incremented](t, s, 200, "POST", "/incr/daily?ttl_ms=7200000", "") // not extended
	must[api.Incremented](t, s, 200, "POST", "/incr/once?ttl_ms=3600000", "", "Idempotency-Key: id")
	must[api.Counter](t, s, 200, "PUT", "/counter/set", `{"value":5,"ttl_ms":3600000}`)
	for _, key := range []string{"daily", "once", "set"} {
		wantBetween(t, "what is left of "+key+", which was given an hour", left(key), 30*time.Minute, time.Hour)
	}
	must[api.Counter](t, s, 200, "PUT", "/counter/set", `{"value":6}`)
	expect.Equal(t, "what is left of set, which was set again without an end, in ms", left("set").Milliseconds(), -1)
	must[api.Incremented](t, s, 200, "POST", "/incr/brief?ttl_ms=100", "")
	expect.Eventually(t, "the counter brief expires", func() bool { return s.do(t, "GET", "/counter/brief", "").status == 404 })
	expect.Equal(t, "POST /incr/brief after the counter expired",
		must[api.Incremented](t, s, 200, "POST", "/incr/brief?ttl_ms=3600000", ""), api.Incremented{Key: "brief", Value: 1, First: 1})
}

// A limit refuses what would pass it, whole, and what is left of it can still be had. A repeat has
// its answer also when the limit is used up since.
func TestCounterStopsAtTheLimitOfTheRequest(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		first := must[api.Incremented](t, s, 200, "POST", "/incr/k?by=4&limit=5", "", "Idempotency-Key: a")
		expect.Equal(t, "POST /incr/k?by=4&limit=5", first, api.Incremented{Key: "k", Value: 4, First: 1})
		for _, header := range [][]string{nil, {"Idempotency-Key: b"}, {"Accept: text/plain"}} {
			refused := s.do(t, "GET", "/incr/k?by=2&limit=5", "", header...)
			wantDetail(t, refused, api.CounterLimit, "5 is the largest")
		}
		expect.Equal(t, "GET /incr/k?limit=5", must[api.Incremented](t, s, 200, "GET", "/incr/k?limit=5", "").Value, 5)
		expect.Equal(t, "POST /incr/k?by=4&limit=5 again", must[api.Incremented](t, s, 200, "POST", "/incr/k?by=4&limit=5", "", "Idempotency-Key: a"), first)
		checkProblem(t, s.do(t, "POST", "/incr/k?limit=5", ""), api.CounterLimit)
		expect.Equal(t, "POST /incr/k without a limit", must[api.Incremented](t, s, 200, "POST", "/incr/k", "").Value, 6)
		checkProblem(t, s.do(t, "POST", "/incr/unused?by=2&limit=1", ""), api.CounterLimit)
		checkProblem(t, s.do(t, "GET", "/counter/unused", ""), api.NotFound)
		must[api.Counter](t, s, 200, "PUT", "/counter/full", `{"value":9223372036854775806}`)
		must[api.Incremented](t, s, 200, "POST", "/incr/full?limit=9223372036854775807", "")
		checkProblem(t, s.do(t, "POST", "/incr/full?limit=9223372036854775807", ""), api.CounterOverflow)
	})
}

// Where a template goes less far than the limit its end is an overflow, as it is without a limit.
func TestTheNarrowerOfTemplateAndLimitIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	must[api.Counter](t, s, 200, "PUT", "/counter/k", `{"value":9}`)
	for limit, want := range map[string]api.Code{"": api.CounterOverflow, "&limit=10": api.CounterOverflow, "&limit=9": api.CounterLimit, "&limit=8": api.CounterLimit} {
		checkProblem(t, s.do(t, "POST", "/incr/k?template=%7Bn:1%7D"+limit, ""), want)
	}
	expect.Equal(t, "POST /incr/k?template={n:2}&limit=10", must[api.Incremented](t, s, 200, "POST", "/incr/k?template=%7Bn:2%7D&limit=10", "").Number, "10")
}

func TestRepeatedRequestOfACounterGetsTheSameAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		first := must[api.Incremented](t, s, 200, "POST", "/incr/k?by=3", "", `Idempotency-Key: "a"`)
		must[api.Incremented](t, s, 200, "POST", "/incr/k", "")
		for range 2 {
			again := must[api.Incremented](t, s, 200, "POST", "/incr/k?by=3", "", `Idempotency-Key: a`)
			expect.Equal(t, "POST /incr/k?by=3 with the same Idempotency-Key again", again, first)
		}
		checkProblem(t, s.do(t, "POST", "/incr/k?by=2", "", "Idempotency-Key: a"), api.PayloadMismatch)
		expect.Equal(t, "GET /counter/k after 3 and 1, and repetitions", must[api.Counter](t, s, 200, "GET", "/counter/k", ""), api.Counter{Key: "k", Value: 4})
	})
}

// A caller without a principal cannot name the request of another, however it chooses its key.
func TestKeyThatLooksLikeAnotherPrincipalsIsAnotherRequest(t *testing.T) {
	user := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Principal: user})
	must[api.Incremented](t, s, 200, "POST", "/incr/k", "", "X-User: ann", "Idempotency-Key: order-1")
	for range 2 {
		expect.Equal(t, "POST /incr/k by a stranger with a digest of ann's key", must[api.Incremented](t, s, 200, "POST", "/incr/k", "", "Idempotency-Key: "+names.Digest("ann", "order-1")),
			api.Incremented{Key: "k", Value: 2, First: 2})
	}
}

func TestCountersHoldOffAfterALossOfEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{})
		s, _ := serveInside(t, server.Config{Store: store})
		must[api.Incremented](t, s, 200, "POST", "/incr/k?by=100", "")
		run(t, store, "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('DEL', key) end return {'ok'}",
			onstore.Key(store, "counter", "k"))
		for _, header := range [][]string{nil, {"Idempotency-Key: id"}} {
			held := s.do(t, "POST", "/incr/k", "", header...)
			wantDetail(t, held, api.PoolQuarantined, "no record of its counters", "for 5s", "--counter-hold-off")
			held.wantHeader(t, "Retry-After", strconv.Itoa(int(counter.DefaultHoldOff.Seconds())))
		}
		time.Sleep(counter.DefaultHoldOff)
		first := int64(101 + counter.DefaultMargin)
		expect.Equal(t, "POST /incr/k after the hold-off",
			must[api.Incremented](t, s, 200, "POST", "/incr/k", ""), api.Incremented{Key: "k", Value: first, First: first})
	})
}

// A restart of Redis, after which values may be lost, does not use up the numbers of a template: it
// is held until an operator has set the counter.
func TestTemplateThatAMoveWouldEndIsHeldUntilTheCounterIsSet(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s := serve(t, server.Config{Store: store})
	const short, long = "/incr/short?template=INV-%7Bn:6%7D", "/incr/long?template=INV-%7Bn:9%7D"
	for _, path := range []string{short, long} {
		must[api.Incremented](t, s, 200, "POST", path+"&by=7", "")
	}
	redis.Stop() // in order, so that the file is whole
	redis.Restart()
	expect.Eventually(t, "the service reads counters", func() bool { return s.do(t, "GET", "/counter/short", "").status == 200 })
	for _, header := range [][]string{nil, {"Idempotency-Key: id"}, nil} {
		held := s.do(t, "POST", short, "", header...)
		problem := checkProblem(t, held, api.CounterBehind)
		expect.Contains(t, held.asked+": detail", problem.Detail, "999999")
	}
	expect.Equal(t, "GET /counter/short while it is held", must[api.Counter](t, s, 200, "GET", "/counter/short", "").Value, 7)
	must[api.Counter](t, s, 200, "PUT", "/counter/short", `{"value":20}`)
	expect.Equal(t, "POST "+short+" after the counter was set to 20", must[api.Incremented](t, s, 200, "POST", short, "").Number, "INV-000021")
	expect.Equal(t, "POST "+long+", which has room", must[api.Incremented](t, s, 200, "POST", long, "").Value, int64(8+counter.DefaultMargin))
}
