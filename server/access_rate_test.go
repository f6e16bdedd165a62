package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// hourly lets five requests through, and the next in an hour.
var hourly = access.Record{Role: access.Use, Principal: "slow", Rate: access.Rate{N: 1, Per: time.Hour}, Burst: 4}

func TestRateOfAPrincipalIsSharedByTwoServers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	config := func() server.Config {
		return server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience})}
	}
	one, two := serveKeyed(t, config(), map[string]access.Record{"slow": hourly}), serveKeyed(t, config(), map[string]access.Record{"slow": hourly})
	for i := range 10 {
		a := []*keyed{one, two}[i%2].as(t, "slow", "POST", "/incr/k", "")
		left := strconv.Itoa(max(4-i, 0))
		a.asked = fmt.Sprintf("request %d of a principal that may send 5, %s", i+1, a.asked)
		a.wantHeader(t, "Ratelimit-Policy", `"principal";q=5;w=18000`)
		expect.Contains(t, a.asked+": header Ratelimit", a.header.Get("Ratelimit"), `"principal";r=`+left+`;t=`)
		if i < 5 {
			n := int64(i + 1)
			expect.Equal(t, a.asked, decode[api.Incremented](t, a, 200), api.Incremented{Key: "k", Value: n, First: n})
			continue
		}
		checkProblem(t, a, api.TooManyRequests) // which is retryable
		a.wantRetryAfter(t, 1800, 3600)
		a.wantHeader(t, "Ratelimit", `"principal";r=0;t=`+a.header.Get("Retry-After"))
	}
	for _, path := range []string{"/livez", "/readyz", "/", "/problems/not-found", "/favicon.ico"} {
		a := one.as(t, "slow", "GET", path, "")
		if a.status >= 300 {
			t.Errorf("%v; want it to be let in: it has no limit", a)
		}
		a.wantHeader(t, "Ratelimit", "")
	}
	free := one.as(t, "use", "POST", "/incr/k", "") // a principal without a limit
	free.wantStatus(t, 200)
	free.wantHeader(t, "Ratelimit", "")
	if keys := redis.Client().Keys(t.Context(), "*slow*").Val(); len(keys) > 0 {
		t.Errorf("keys of Redis that have the principal's name: got %q, want none", keys)
	}
}

func TestDoorRefusesWhoAsksTooOftenInItsOwnWords(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, map[string]access.Record{"slow": hourly})
	for range 5 {
		g.as(t, "slow", "POST", "/incr/k", "")
	}
	leaf := g.as(t, "slow", "GET", "/api/segment/get/t", "")
	leaf.wantStatus(t, 500)
	expect.Contains(t, leaf.asked, string(leaf.body), "Asked too often", "LeafServerException")
	tinyid := g.as(t, "slow", "GET", "/tinyid/id/nextId?bizType=t", "")
	tinyid.wantStatus(t, 200)
	tinyid.wantBody(t, `{"data":null,"code":6,"message":"Asked too often"}`)
}

func TestRateOfAllPrincipalsBoundsTinyidsTokens(t *testing.T) {
	g := serveKeyed(t, server.Config{TinyidTokens: tinyidTokens}, nil)
	expect.Error(t, "Change", g.policy.Change("", nil, access.Limit{Rate: hourly.Rate, Burst: hourly.Burst}), nil)
	for i := range 5 {
		wantDoor(t, g.do(t, "GET", "/tinyid/id/nextIdSimple?"+tinyidTest, ""), 200, javaText, strconv.Itoa(i+1))
	}
	wantDoor(t, g.do(t, "GET", "/tinyid/id/nextId?"+tinyidTest, ""), 200, javaJSON, `{"data":null,"code":6,"message":"Asked too often"}`)
}

// A request whose client hangs up, or whose time is over, before it is counted was not let in. That
// is no fault of the service, of which operators are alarmed.
func TestRequestThatEndsBeforeItIsCountedWasNotLetIn(t *testing.T) {
	g := serveKeyed(t, server.Config{}, map[string]access.Record{"slow": hourly})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 { // an answer that is there may be taken before it is noticed
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ended, http.MethodGet, "http://localhost/id/uuid", http.NoBody)
		r.Header.Set("X-Api-Key", g.keys["slow"].Text())
		g.server.Handler().ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
			expect.Contains(t, "GET /id/uuid of a client that has gone", w.Body.String(), `"code":"store-unavailable"`)
		}
	}
}

// Wrong secrets for a key's id, which is no secret, do not keep the owner out, however many come
// from the owner's own address.
func TestOwnerOfAKeyPassesWhateverOthersGuess(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil)
	for range 200 {
		guess := access.Key{ID: g.keys["use"].ID, Secret: access.NewKey().Secret}.Text()
		g.do(t, "POST", "/incr/k", "", "X-API-Key: "+guess).wantStatus(t, http.StatusUnauthorized)
	}
	g.as(t, "use", "POST", "/incr/k", "").wantStatus(t, http.StatusOK)
}
