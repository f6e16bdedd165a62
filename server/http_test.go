package server_test

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestSaneRequestIDsAreKeptAndOthersReplaced(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	own := regexp.MustCompile(`^[A-Za-z0-9_-]{22}$`)
	seen := map[string]bool{}
	for _, path := range []string{"/livez", "/incr/k", "/nope", "/incr/a%2Fb", "/problems/not-found"} {
		for _, sane := range []string{"a", "abc-123", "550e8400-e29b-41d4-a716-446655440000", "A.b_c:d@e/f+g=h-i", strings.Repeat("x", 128)} {
			a := s.do(t, "GET", path, "", "X-Request-Id: "+sane)
			expect.Equal(t, a.asked+": X-Request-Id", a.header.Values("X-Request-Id"), []string{sane})
		}
		for _, insane := range []string{"", strings.Repeat("x", 129), "a b", "a,b", `"a"`, "a;b", "<a>", "é", "a\tb", "\xff", "a%0Ab", "{a}", strings.Repeat("x", 10_000)} {
			got := s.do(t, "GET", path, "", "X-Request-Id: "+insane).header.Get("X-Request-Id")
			if !own.MatchString(got) || seen[got] {
				t.Errorf("GET %s with X-Request-Id %.40q: got X-Request-Id %q, want a new one of 22 characters", path, insane, got)
			}
			seen[got] = true
		}
	}
	two := s.do(t, "GET", "/livez", "", "X-Request-Id: first", "X-Request-Id: second").header.Values("X-Request-Id")
	expect.Equal(t, "GET /livez with two X-Request-Id: X-Request-Id", two, []string{"first"})
}

// Monitors may add what they like.
func TestProbesTakeAnyQuery(t *testing.T) {
	s := onEmbedded(t)
	for _, path := range []string{"/livez?probe=1", "/readyz?a&b;c"} {
		for _, method := range []string{"GET", "HEAD"} {
			s.do(t, method, path, "").wantStatus(t, 200)
		}
	}
}

func TestPanicIsAnInternalErrorThatTheLogExplains(t *testing.T) {
	panics := map[string]any{"/text": "all is lost", "/error": errors.New("all is lost"), "/other": fmt.Errorf("all is lost: %w", counter.ErrNotFound), "/number": 42}
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})}, func(s *server.Server) {
		for path, value := range panics {
			s.Handle("GET", path, func(http.ResponseWriter, *http.Request) { panic(value) })
		}
		s.Handle("GET", "/half", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			panic("all is lost")
		})
	})
	for path, value := range panics {
		a := s.do(t, "GET", path, "", "X-Request-Id: "+path)
		problem := checkProblem(t, a, api.InternalError)
		if strings.Contains(string(a.body), fmt.Sprint(value)) || problem.Detail == "" {
			t.Errorf("%v; want a detail that does not say %v", a, value)
		}
		line := s.logLine(t, `msg="panic in a handler"`, "request_id="+path)
		expect.Contains(t, "the log of GET "+path, line, fmt.Sprint(value), "goroutine", "route="+path)
		s.logLine(t, "msg=request", "status=500", "request_id="+path)
	}
	half := s.do(t, "GET", "/half", "") // an answer that has begun is not written over
	half.wantStatus(t, 202)
	half.wantBody(t, "")
	s.do(t, "GET", "/livez", "").wantStatus(t, 200)
}

func TestUnknownErrorOfAHandlerIsAnInternalErrorThatTheLogExplains(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})}, func(s *server.Server) {
		s.HandleGuarded("POST", "/fail", idempotency.Route{Name: "fail"}, func(http.ResponseWriter, *http.Request) error {
			return errors.New("no such luck")
		})
	})
	a := s.do(t, "POST", "/fail", "", "Idempotency-Key: k", "X-Request-Id: here")
	if checkProblem(t, a, api.InternalError); strings.Contains(string(a.body), "luck") {
		t.Errorf("%v; want nothing of the error's text", a)
	}
	s.logLine(t, "no such luck", "request_id=here", "level=ERROR")
}

// logLine waits for the one line of the log that holds all parts: a request is logged after its
// answer, which the client may have before that if it is large.
func (s *service) logLine(t *testing.T, parts ...string) string {
	t.Helper()
	var found []string
	expect.Eventually(t, fmt.Sprintf("the log has a line with %q", parts), func() bool {
		found = slices.DeleteFunc(slices.Collect(strings.Lines(s.log.String())), func(line string) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
		})
		return len(found) > 0
	})
	if len(found) != 1 {
		t.Fatalf("the log has %d lines with %q, want 1:\n%s", len(found), parts, s.log)
	}
	return found[0]
}

func TestBodyLimitIsTheConfiguredOneAndIsTold(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: true, MaxBody: 64})
	for _, path := range []string{"/token", "/payments", "/incr/k"} {
		for _, chunked := range []bool{false, true} {
			c := call{method: "POST", path: path, body: strings.Repeat(" ", 65), chunked: chunked, header: []string{"Idempotency-Key: k"}}
			a, err := s.send(t.Context(), c)
			expect.NoError(t, c.String(), err)
			expect.Equal(t, a.asked+": detail", checkProblem(t, a, api.PayloadTooLarge).Detail, "the limit is 64 bytes")
		}
		if a := s.do(t, "POST", path, strings.Repeat(" ", 64), "Idempotency-Key: k"); a.status == 413 {
			t.Errorf("%v; a body of exactly the limit is refused, want it taken", a)
		}
	}
}

func TestAnswersThatChangeStateOrHandSomethingOutMustNotBeStored(t *testing.T) {
	t.Parallel()
	f := newFixture(t, storetest.Open(t, redisstore.Config{}))
	complete := call{method: "POST", path: "/token/{claimed}/complete", header: []string{"Lease-Token: {lease}"}, body: `{"status":200}`}
	replay := call{method: "POST", path: "/token/{claimed}/claim", body: forAnHour}
	repeat := writing[len(writing)-1]
	text := call{method: "POST", path: "/incr/k", header: []string{"Accept: text/plain"}}
	calls := append(slices.Clone(writing), complete, replay, repeat, text, call{method: "GET", path: "/livez"}, call{method: "GET", path: "/readyz"},
		call{method: "GET", path: "/id/snowflake/p?n=3"}, call{method: "GET", path: "/id/decode/1"},
		call{method: "GET", path: "/id/segment/t"}, call{method: "GET", path: "/id/uuid?n=2"}, call{method: "GET", path: "/incr/k?template={n}"}, call{method: "GET", path: "/metrics"})
	for _, c := range append(calls, reading...) {
		a := f.send(t, c)
		if strings.HasSuffix(c.path, "/release") {
			checkProblem(t, a, api.Superseded) // it was completed just before
		} else if a.status >= 300 {
			t.Errorf("%v; want success", a)
		}
		a.wantHeader(t, "Cache-Control", "no-store")
		expect.Equal(t, a.asked+": has an X-Request-Id", a.header.Get("X-Request-Id") != "", true)
	}
}

func TestIndexListsTheRoutes(t *testing.T) {
	t.Parallel()
	for _, dev := range []bool{true, false} {
		s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Dev: dev})
		a := s.do(t, "GET", "/", "")
		a.wantStatus(t, 200)
		expect.Contains(t, "GET /: Content-Type", a.header.Get("Content-Type"), "text/plain")
		for _, line := range []string{
			`/token +POST`, `/token/{token} +GET`, `/token/{token}/claim +POST`, `/token/{token}/complete +POST`, `/token/{token}/extend +POST`,
			`/token/{token}/release +POST`, `/incr/{key} +GET`, `/incr/{key} +POST`, `/counter/{key} +GET`, `/worker/{pool} +POST`, `/worker/{pool} +GET`,
			`/worker/{pool} +PUT`, `/worker +GET`, `/id/snowflake +GET`, `/id/snowflake/{pool} +GET`, `/id/decode/{id} +GET`,
			`/id/segment/{tag} +GET`, `/id/uuid +GET`, `/id/ulid +GET`, `/id/typeid +GET`, `/limit/{name} +POST`, `/api/segment/get/{key} +GET`, `/api/segment/get/{key} +POST`, `/api/snowflake/get/{key} +GET`, `/decodeSnowflakeId +GET`,
			`/cache +GET`, `/db +GET`, `/tinyid/id/nextId +GET`, `/tinyid/id/nextIdSimple +GET`, `/tinyid/id/nextSegmentId +GET`, `/tinyid/id/nextSegmentIdSimple +POST`,
			`/lock/{name} +POST`, `/lock/{name} +PUT`, `/lock/{name} +DELETE`, `/lock/{name} +GET`, `/lock +GET`, `/counter/{key} +PUT`, `/counter/{key} +DELETE`, `/counter +GET`,
			`coatcheck: .+`, `/token .+ once, .+`, `/incr .+ twice; .+`, `/id .+ segments, UUIDs`, `/worker .+ window of time`, `/lock .+ fence, .+`,
			`/worker/{pool}/{worker_id} +PUT`, `/worker/{pool}/{worker_id} +DELETE`, `/livez +GET`, `/readyz +GET`, `/metrics +GET`, `/problems/{code} +GET`,
		} {
			if !regexp.MustCompile(`(?m)^` + line + `$`).Match(a.body) {
				t.Errorf("GET /: got no line that is %q in\n%s", line, a.body)
			}
		}
		if strings.Contains(string(a.body), "/payments") != dev {
			t.Errorf("GET / with Dev %v: /payments must be there in that case only:\n%s", dev, a.body)
		}
		if a := s.do(t, "POST", "/payments", `{"amount":5,"currency":"EUR","to":"a"}`, "Idempotency-Key: k"); (a.status == 201) != dev {
			t.Errorf("with Dev %v: %v; want status 201 in that case only", dev, a)
		}
	}
}

func TestPolicyPageTellsHowGuardedRoutesAreGuarded(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	none := s.do(t, "GET", "/idempotency-policy", "")
	none.wantStatus(t, 200)
	none.wantBody(t, `{"routes":[]}`+"\n")
	s = onEmbedded(t)
	policies := must[api.Policies](t, s, 200, "GET", "/idempotency-policy", "").Routes
	want := api.RoutePolicy{
		Route: "POST /payments", Headers: []string{"Idempotency-Token", "Idempotency-Key"}, Required: true, Policy: "hold",
		LeaseMs: 30_000, RetentionMs: 86_400_000, MaxBody: limit, Scope: "payments", Doubts: []string{"408", "502", "503", "504"},
	}
	expect.MustEqual(t, "GET /idempotency-policy", policies, []api.RoutePolicy{want},
		cmpopts.IgnoreFields(api.RoutePolicy{}, "UniqueBy", "Fingerprint", "Keep", "MaxWaitMs"))
	expect.Equal(t, "GET /idempotency-policy: says what is in the fingerprint", len(policies[0].Fingerprint) > 0, true)
}
