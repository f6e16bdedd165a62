package server_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// hourly lets five requests through, and the next in an hour.
var hourly = access.Record{Role: access.Use, Principal: "slow", Rate: access.Rate{N: 1, Per: time.Hour}, Burst: 4}

func TestRateOfAPrincipalIsSharedByTwoServers(t *testing.T) {
	redis := redistest.Start(t)
	config := func() server.Config {
		return server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()})}
	}
	one, two := serveKeyed(t, config(), map[string]access.Record{"slow": hourly}), serveKeyed(t, config(), map[string]access.Record{"slow": hourly})
	for i := range 10 {
		a := []*keyed{one, two}[i%2].as(t, "slow", "POST", "/incr/k", "")
		left := strconv.Itoa(max(4-i, 0))
		if policy, limit := a.header.Get("Ratelimit-Policy"), a.header.Get("Ratelimit"); policy != `"principal";q=5;w=18000` || !strings.HasPrefix(limit, `"principal";r=`+left+`;t=`) {
			t.Errorf("%d: policy %q, limit %q", i, policy, limit)
		}
		if i < 5 {
			if a.status != 200 || string(a.body) != `{"key":"k","value":`+strconv.Itoa(i+1)+`,"first":`+strconv.Itoa(i+1)+"}\n" {
				t.Errorf("%d: %d %s", i, a.status, a.body)
			}
			continue
		}
		if problem := checkProblem(t, a, wire.TooManyRequests); !problem.Retryable {
			t.Errorf("%+v", problem)
		}
		if wait, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || wait < 3500 || wait > 3600 {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/", "/problems/not-found", "/favicon.ico"} {
		if a := one.as(t, "slow", "GET", path, ""); a.status >= 300 || a.header.Get("Ratelimit") != "" {
			t.Errorf("%s: %d %s", path, a.status, a.header)
		}
	}
	if a := one.as(t, "use", "POST", "/incr/k", ""); a.status != 200 || a.header.Get("Ratelimit") != "" {
		t.Errorf("a principal without a limit: %d %v", a.status, a.header)
	}
	if keys := redis.Client().Keys(t.Context(), "*slow*").Val(); len(keys) > 0 {
		t.Errorf("the principal stands in %q", keys)
	}
}

func TestDoorRefusesWhoAsksTooOftenInItsOwnWords(t *testing.T) {
	g := serveKeyed(t, server.Config{}, map[string]access.Record{"slow": hourly})
	for range 5 {
		g.as(t, "slow", "POST", "/incr/k", "")
	}
	if a := g.as(t, "slow", "GET", "/api/segment/get/t", ""); a.status != 500 || !strings.Contains(string(a.body), "Asked too often") || !strings.Contains(string(a.body), "LeafServerException") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := g.as(t, "slow", "GET", "/tinyid/id/nextId?bizType=t", ""); a.status != 200 || string(a.body) != `{"data":null,"code":6,"message":"Asked too often"}` {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Where the store is away, the limit holds by the server's own count, and what needs no store goes on.
func TestRateWhileTheStoreIsAway(t *testing.T) {
	redis := redistest.Start(t)
	g := serveKeyed(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 200 * time.Millisecond})}, map[string]access.Record{"slow": hourly})
	if a := g.as(t, "slow", "GET", "/id/uuid", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	redis.Kill()
	for i := range 8 {
		a := g.as(t, "slow", "GET", "/id/uuid", "")
		if want := map[bool]int{true: 200, false: 429}[i < 4]; a.status != want {
			t.Errorf("%d: %d %s", i, a.status, a.body)
		}
	}
	g.logLine(t, "this server counts by itself")
}

func TestGuessingIsSlowed(t *testing.T) {
	g := serveKeyed(t, server.Config{}, nil)
	guess := func() answer {
		return g.do(t, "POST", "/incr/k", "", "X-API-Key: "+access.Key{ID: g.keys["use"].ID, Secret: access.NewKey().Secret}.Text())
	}
	for i := range 20 {
		if a := guess(); a.status != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d", i+1, a.status)
		}
	}
	eventually(t, "the next guess is not looked at", func() bool { return guess().status == http.StatusTooManyRequests })
	a := guess()
	for a.status == http.StatusUnauthorized { // one more was free by now
		a = guess()
	}
	if wait := a.header.Get("Retry-After"); wait == "" || a.header.Get("WWW-Authenticate") != "" {
		t.Errorf("%v", a.header)
	}
	checkProblem(t, a, wire.TooManyRequests)
	if a := g.as(t, "admin", "POST", "/incr/k", ""); a.status != 200 {
		t.Errorf("another key from the same address: %d %s", a.status, a.body)
	}
}
