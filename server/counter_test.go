package server_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestCountersAreSetReadListedAndRemoved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		for _, value := range []int64{5, 9007199254740993, -9223372036854775808, 0, 9223372036854775806} {
			want := wire.Counter{Key: "k", Value: value}
			set := s.do(t, "PUT", "/counter/k", fmt.Sprintf(`{"value":%d}`, value))
			if got := decode[wire.Counter](t, set, 200); got != want || set.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%+v %v", got, set.header)
			}
			if got := must[wire.Counter](t, s, 200, "GET", "/counter/k", ""); got != want {
				t.Errorf("%+v", got)
			}
			if got := must[wire.Incremented](t, s, 200, "GET", "/incr/k", ""); got.Value != value+1 || got.First != value+1 {
				t.Errorf("%+v after %d", got, value)
			}
		}
		checkProblem(t, s.do(t, "POST", "/incr/k", ""), wire.CounterOverflow)
		removed := s.do(t, "DELETE", "/counter/k", "")
		if decode[nothing](t, removed, 204); removed.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", removed.header)
		}
		checkProblem(t, s.do(t, "GET", "/counter/k", ""), wire.NotFound)
		checkProblem(t, s.do(t, "DELETE", "/counter/k", ""), wire.NotFound)
		if got := must[wire.Incremented](t, s, 200, "POST", "/incr/k?by=3", ""); got != (wire.Incremented{Key: "k", Value: 3, First: 1}) {
			t.Errorf("%+v", got)
		}
		if text := s.do(t, "PUT", "/counter/k", `{"value":-7}`, "Accept: text/plain"); string(text.body) != "-7\n" {
			t.Errorf("%q", text.body)
		}
		if text := s.do(t, "GET", "/counter/k", "", "Accept: text/plain"); string(text.body) != "-7\n" || !strings.HasPrefix(text.header.Get("Content-Type"), "text/plain") {
			t.Errorf("%q %v", text.body, text.header)
		}
	})
}

func TestCountersAreListedByPages(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	f := newFixture(t, store)
	if got := must[wire.Counters](t, f.s, 200, "GET", "/counter?prefix=none", ""); got.Counters == nil || len(got.Counters) != 0 || got.Next != "" {
		t.Errorf("%+v", got)
	}
	for i := range 7 {
		must[wire.Counter](t, f.s, 200, "PUT", fmt.Sprint("/counter/p:", i), fmt.Sprintf(`{"value":%d}`, i))
	}
	f.put(t, store, "p:3", "SET", "text")
	var told []string
	for cursor, pages := "", 0; pages < 10; pages++ {
		page := must[wire.Counters](t, f.s, 200, "GET", "/counter?prefix=p:&n=3&cursor="+cursor, "")
		for _, one := range page.Counters {
			value := "null"
			if one.Value != nil {
				value = strconv.FormatInt(*one.Value, 10)
			}
			told = append(told, one.Key+"="+value+one.Error)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if got := strings.Join(told, " "); got != "p:0=0 p:1=1 p:2=2 p:3=nullnot-an-integer p:4=4 p:5=5 p:6=6" {
		t.Error(got)
	}
}

func TestCounterWithAnEnd(t *testing.T) {
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s := serve(t, server.Config{Store: store})
	left := func(key string) time.Duration {
		return redis.Client().PTTL(t.Context(), store.Key("counter", key)).Val()
	}
	must[wire.Incremented](t, s, 200, "POST", "/incr/daily?ttl_ms=3600000", "")
	must[wire.Incremented](t, s, 200, "POST", "/incr/daily?ttl_ms=7200000", "") // not extended
	must[wire.Incremented](t, s, 200, "POST", "/incr/once?ttl_ms=3600000", "", "Idempotency-Key: id")
	must[wire.Counter](t, s, 200, "PUT", "/counter/set", `{"value":5,"ttl_ms":3600000}`)
	for _, key := range []string{"daily", "once", "set"} {
		if got := left(key); got <= 59*time.Minute || got > time.Hour {
			t.Errorf("%s has %v left", key, got)
		}
	}
	must[wire.Counter](t, s, 200, "PUT", "/counter/set", `{"value":6}`)
	if got := left("set"); got >= 0 {
		t.Errorf("it has %v left", got)
	}
	must[wire.Incremented](t, s, 200, "POST", "/incr/brief?ttl_ms=100", "")
	eventually(t, "it expires", func() bool { return s.do(t, "GET", "/counter/brief", "").status == 404 })
	if got := must[wire.Incremented](t, s, 200, "POST", "/incr/brief?ttl_ms=3600000", ""); got.Value != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRepeatedRequestOfACounterGetsTheSameAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		first := must[wire.Incremented](t, s, 200, "POST", "/incr/k?by=3", "", `Idempotency-Key: "a"`)
		must[wire.Incremented](t, s, 200, "POST", "/incr/k", "")
		for range 2 {
			if again := must[wire.Incremented](t, s, 200, "POST", "/incr/k?by=3", "", `Idempotency-Key: a`); again != first {
				t.Errorf("%+v after %+v", again, first)
			}
		}
		checkProblem(t, s.do(t, "POST", "/incr/k?by=2", "", "Idempotency-Key: a"), wire.PayloadMismatch)
		if got := must[wire.Counter](t, s, 200, "GET", "/counter/k", ""); got.Value != 4 {
			t.Errorf("%+v", got)
		}
	})
}

func TestCountersHoldOffAfterALossOfEverything(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()})})
	must[wire.Incremented](t, s, 200, "POST", "/incr/k?by=100", "")
	if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, header := range [][]string{nil, {"Idempotency-Key: id"}} {
		held := s.do(t, "POST", "/incr/k", "", header...)
		checkProblem(t, held, wire.PoolQuarantined)
		if wait, err := strconv.Atoi(held.header.Get("Retry-After")); err != nil || wait < 1 || wait > 5 {
			t.Errorf("Retry-After: %q", held.header.Get("Retry-After"))
		}
	}
	eventually(t, "it goes on", func() bool { return s.do(t, "POST", "/incr/k", "").status == 200 })
	if got := must[wire.Counter](t, s, 200, "GET", "/counter/k", ""); got.Value != 101+counter.DefaultMargin {
		t.Errorf("%+v", got)
	}
}

func TestCounterThatIsBehindIsRefusedByAStrictServer(t *testing.T) {
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s := serve(t, server.Config{Store: store, Counters: counter.Config{AfterLoss: counter.Refuse}})
	must[wire.Incremented](t, s, 200, "POST", "/incr/k?by=100", "")
	if err := redis.Client().Del(t.Context(), store.Key("counter", "k")).Err(); err != nil {
		t.Fatal(err)
	}
	for _, header := range [][]string{nil, {"Idempotency-Key: id"}} {
		checkProblem(t, s.do(t, "POST", "/incr/k", "", header...), wire.CounterBehind)
	}
	must[wire.Counter](t, s, 200, "PUT", "/counter/k", `{"value":200}`)
	if got := must[wire.Incremented](t, s, 200, "POST", "/incr/k", "", "Idempotency-Key: id"); got.Value != 201 {
		t.Errorf("%+v", got)
	}
}
