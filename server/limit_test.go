package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func badLimits() (rows []bad) {
	take := call{method: "POST", path: "/limit/k"}
	rows = append(rows, badField(take, "rate", "*", "", "{}", `{"per_ms":1000}`, `{"rate":null,"per_ms":1000}`)...)
	rows = append(rows, badField(take, "per_ms", "*", `{"rate":1}`, `{"rate":1,"per_ms":null}`)...)
	for _, field := range []string{"rate", "burst"} {
		form := map[string]string{"rate": `{"per_ms":1000,"rate":*}`, "burst": `{"per_ms":1000,"rate":1,"burst":*}`}[field]
		rows = append(rows, badField(take, field, form, "0", "-1", "1000001", "1.5", `"1"`, "true", "9223372036854775808", "1e3")...)
	}
	rows = append(rows, millis(take, "per_ms", `{"rate":1,"per_ms":*}`, 1, 31_622_400_000)...)
	rows = append(rows, badField(take, "cost", `{"rate":5,"per_ms":1000,"cost":*}`, "6", "-1000001", "1.5", `"1"`)...)
	rows = append(rows, badField(take, "cost", `{"rate":5,"per_ms":1000,"burst":3,"cost":*}`, "4")...)
	rows = append(rows, badField(take, "burst", "*", `{"rate":1,"per_ms":31622400000,"burst":1000}`)...)
	rows = append(rows, bad{call: call{method: "POST", path: "/limit/k?cost=1", body: `{"rate":1,"per_ms":1000}`}, code: api.InvalidRequest, field: "cost"})
	return append(rows, bad{call: call{method: "DELETE", path: "/limit/k?force=1"}, code: api.InvalidRequest, field: "force"})
}

const perHour = `{"rate":6,"per_ms":3600000,"burst":4,"cost":%d}`

func TestLimitLetsItsBurstThroughAndSaysWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := serveInside(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
		take := func(cost int) answer { t.Helper(); return s.do(t, "POST", "/limit/sms", fmt.Sprintf(perHour, cost)) }
		wants := func(cost, remaining int, minutes int64) {
			t.Helper()
			taken := take(cost)
			expect.Equal(t, taken.asked, decode[api.LimitTaken](t, taken, 200), api.LimitTaken{Allowed: true, Remaining: remaining, ResetMs: minutes * 60_000})
			taken.wantHeader(t, "Ratelimit-Policy", `"limit";q=4;w=2400`)
			taken.wantHeader(t, "Ratelimit", fmt.Sprintf(`"limit";r=%d;t=%d`, remaining, minutes*60))
			taken.wantHeader(t, "Cache-Control", "no-store")
		}
		wants(0, 4, 0)
		wants(1, 3, 10)
		wants(2, 1, 30)
		time.Sleep(250 * time.Microsecond)
		refused := take(2)
		problem := checkProblem(t, refused, api.LimitReached)
		expect.Equal(t, refused.asked+": what the problem says", []any{*problem.Allowed, *problem.Remaining, *problem.ResetMs, *problem.RetryAfterMs}, []any{false, 1, int64(30 * 60_000), int64(10 * 60_000)})
		refused.wantHeader(t, "Retry-After", "600")
		refused.wantHeader(t, "Ratelimit", `"limit";r=1;t=600`)
		wants(-1, 2, 20)
		time.Sleep(time.Hour)
		wants(4, 0, 40)
		decode[nothing](t, s.do(t, "DELETE", "/limit/sms", ""), 204)
		decode[nothing](t, s.do(t, "DELETE", "/limit/sms", ""), 204)
		wants(1, 3, 10)
		expect.Equal(t, "POST of a rate without a burst", must[api.LimitTaken](t, s, 200, "POST", "/limit/plain", `{"rate":3,"per_ms":1000}`).Remaining, 2)
	})
}

func TestBurstThatTakesTooLongIsToldTheLargest(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	for burst, body := range map[int]string{
		10: `{"rate":1,"per_ms":31622400000,"burst":1000000}`, 7320: `{"rate":2,"per_ms":86400000,"burst":7321}`,
	} {
		refused := s.do(t, "POST", "/limit/slow", body)
		want := fmt.Sprintf("from 1 to %d, which is free again within ten years", burst)
		expect.Contains(t, refused.asked+": the problem", checkProblem(t, refused, api.InvalidRequest).Detail, want)
		largest := fmt.Sprintf("%s:%d}", body[:strings.LastIndex(body, ":")], burst)
		must[api.LimitTaken](t, s, 200, "POST", "/limit/slow", largest)
	}
}

// A limit is one over all servers, on every kind of store, and its requests are counted.
func TestLimitIsSharedByTwoServersAndCounted(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		one, two := serve(t, server.Config{Store: store}), serve(t, server.Config{Store: store})
		for i, s := range []*service{one, two, two, one} {
			expect.Equal(t, "remaining", must[api.LimitTaken](t, s, 200, "POST", "/limit/k", fmt.Sprintf(perHour, 1)).Remaining, 3-i)
		}
		for range 2 {
			checkProblem(t, one.do(t, "POST", "/limit/k", fmt.Sprintf(perHour, 1)), api.LimitReached)
		}
		must[api.LimitTaken](t, one, 200, "POST", "/limit/k", fmt.Sprintf(perHour, -3))
		text := string(one.do(t, "GET", "/metrics", "").body)
		for _, want := range []string{
			`coatcheck_limit_requests_total{outcome="allowed"} 2`, `coatcheck_limit_requests_total{outcome="refused"} 2`, `coatcheck_limit_requests_total{outcome="failed"} 0`, "coatcheck_limit_returned_total 3",
		} {
			expect.Contains(t, "GET /metrics", text, want)
		}
	})
}

// The principal's own rate stands in the same headers, and is another limit.
func TestLimitStandsBesideTheRateOfThePrincipal(t *testing.T) {
	s := serveKeyed(t, server.Config{}, map[string]access.Record{"slow": hourly})
	for i := range 5 {
		taken := s.as(t, "slow", "POST", "/limit/k", `{"rate":1,"per_ms":60000,"burst":3}`)
		taken.wantHeader(t, "Ratelimit-Policy", `"principal";q=5;w=18000, "limit";q=3;w=180`)
		if i >= 3 {
			checkProblem(t, taken, api.LimitReached)
		}
	}
	refused := s.as(t, "slow", "POST", "/limit/other", `{"rate":1,"per_ms":60000}`)
	checkProblem(t, refused, api.TooManyRequests)
	refused.wantHeader(t, "Ratelimit-Policy", `"principal";q=5;w=18000`)
	checkProblem(t, s.as(t, "use", "DELETE", "/limit/k", ""), api.Forbidden)
	s.as(t, "admin", "DELETE", "/limit/k", "").wantStatus(t, 204)
	checkProblem(t, s.as(t, "read", "POST", "/limit/k", `{"rate":1,"per_ms":60000}`), api.Forbidden)
}

// Who may take from a limit does not free what others have taken from it, nor what has become free
// meanwhile a second time: nothing tells whose it was.
func TestGivingBackToALimitIsForAdmins(t *testing.T) {
	t.Parallel()
	g := serveKeyed(t, server.Config{}, nil)
	left := func() int {
		return decode[api.LimitTaken](t, g.as(t, "use", "POST", "/limit/sms", fmt.Sprintf(perHour, 0)), 200).Remaining
	}
	g.as(t, "use", "POST", "/limit/sms", fmt.Sprintf(perHour, 3)).wantStatus(t, 200)
	for _, cost := range []int{-1, -1_000_000} {
		wantField(t, g.as(t, "use", "POST", "/limit/sms", fmt.Sprintf(perHour, cost)), api.Forbidden, "cost")
	}
	expect.Equal(t, "what is left after that", left(), 1)
	expect.Contains(t, "the audit", strings.Join(g.auditLines(), "\n"), `action=refused name=sms principal=use key_id=`+g.keys["use"].ID)
	g.as(t, "admin", "POST", "/limit/sms", fmt.Sprintf(perHour, -2)).wantStatus(t, 200)
	expect.Equal(t, "what is left after an admin gave 2 back", left(), 3)
}

func TestLimitWithoutAStoreIsUnavailable(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL()})})
	must[api.LimitTaken](t, s, 200, "POST", "/limit/k", fmt.Sprintf(perHour, 1))
	redis.Kill()
	expect.Eventually(t, "the service says that its store is not available", func() bool {
		asked := s.do(t, "POST", "/limit/k", fmt.Sprintf(perHour, 1))
		return asked.status == 503 && asked.header.Get("Retry-After") == "1" && asked.header.Get("Ratelimit") == ""
	})
}
