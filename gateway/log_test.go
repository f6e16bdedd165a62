package gateway

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Everything that a client chooses, must keep secret or is answered goes through, well and badly,
// with the store and the upstream there and away.
func TestLogAndMetricsNeverHoldWhatAClientChoseOrMustKeepSecret(t *testing.T) {
	redis := redistest.Start(t)
	upstream := converse(t, func(n int64, r *http.Request, conn net.Conn) bool {
		switch n % 4 {
		case 0:
			return say(conn, "HTTP/1.1 200 OK\r\nX-Zheader: Zheader\r\nContent-Length: 7\r\n\r\nZanswer")
		case 1:
			say(conn, r.Header.Get("Idempotency-Key")+" Zgarbage\r\n\r\n")
		case 2:
			say(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZchunk\r\n")
		case 3:
			return say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokZunasked")
		}
		return false
	})
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 5 * time.Second})
	s := serve(t, upstream.url, `routes: [{match: "POST /pay/{who}"}, {match: /, guard: false}]`, on(store), func(c *Config) {
		c.Principal = idempotency.HeaderPrincipal("Authorization")
	})
	token := s.issue()
	walk := func() {
		for i := range 6 {
			for _, headers := range [][]string{
				{fmt.Sprintf("Idempotency-Key: Zkey%d", i)},
				{"Idempotency-Key: Zkey,Z"},
				{"Idempotency-Token: " + token},
				{fmt.Sprintf("Idempotency-Token: Ztoken%d", i)},
			} {
				// some are cut off
				_, _ = s.send(t.Context(), "POST", "/pay/Zwho?Zquery=1", "Zbody", append(headers, "Authorization: Bearer Zcredential", "Cookie: Zcookie")...)
			}
			// some are cut off
			_, _ = s.send(t.Context(), "ZMETHOD", "/Zpath", "Zbody", "X-Request-Id: Z Z", "Idempotency-Key: Zkey")
		}
	}
	walk()
	redis.Kill()
	walk()
	_, metrics := s.side("/metrics")
	_, ready := s.side("/readyz")
	if err := s.end(); err != nil {
		t.Log(err) // the store is away
	}
	log := s.log.String()
	expect.Equal(t, "lines of the log for 60 requests", strings.Count(log, "msg=request"), 60)
	for what, text := range map[string]string{"log": log, "metrics": metrics, "readyz": ready} {
		if found := regexp.MustCompile(`.*(Z(key|token|who|query|body|credential|cookie|path|METHOD|header|answer|garbage|chunk|unasked)|` + regexp.QuoteMeta(token) + `).*`).FindString(text); found != "" {
			t.Errorf("the %s holds what a client chose, or must keep secret: %s", what, found)
		}
	}
	expect.Contains(t, "log", log, `outcome=granted`, `outcome=store_error`, `outcome=key_error`, `outcome=unknown_token`, `code=idempotency-token-unknown`, `outcome=unguarded_key`, `method=other`, `route="POST /pay/{who}"`, "failure=broken", "failure=cut")
}

func TestLineOfARefusedRequestHasTheProblemsCodeAndTheOperation(t *testing.T) {
	upstream := converse(t, func(int64, *http.Request, net.Conn) bool { return false })
	r := start(t, upstream.url, payments)
	r.wantCode(r.pay("a"), api.OutcomeUnknown)
	line := func(a answer, code api.Code) string {
		t.Helper()
		r.wantCode(a, code)
		id := "request_id=" + a.header.Get("X-Request-Id")
		var found string
		expect.Eventually(t, "the line of the request is written, which may come after the answer", func() bool {
			for line := range strings.Lines(r.log.String()) {
				if strings.Contains(line, "msg=request ") && strings.Contains(line, id) {
					found = line
				}
			}
			return found != ""
		})
		expect.Contains(t, "line of "+a.asked, found, " code="+string(code))
		return found
	}
	doubt := r.pay("a")
	name := doubt.problem().Operation
	expect.Equal(t, "characters of the operation in the problem", len(name), 32)
	expect.Contains(t, "line of an operation in doubt", line(doubt, api.IdempotencyUnknown), "status=409", " operation="+name)
	for code, headers := range map[api.Code][]string{
		api.KeyMissing:      nil,
		api.KeyMalformed:    {"Idempotency-Key: a,b"},
		api.PayloadMismatch: {"Idempotency-Key: a"},
		api.TokenUnknown:    {"Idempotency-Token: unknown"},
	} {
		refused := line(r.do("POST", "/payments", "another", headers...), code)
		expect.Equal(t, "the line of "+string(code)+" names an operation", strings.Contains(refused, "operation="), false)
	}
}

func TestMetricsCountEveryOutcome(t *testing.T) {
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, "routes: [{match: POST /payments, max_body_bytes: 10}]")
	s.spend("a")
	s.spend("a")
	s.do("POST", "/payments", "y", "Idempotency-Key: a")
	s.do("POST", "/payments", "y", "Idempotency-Key: a,b")
	s.do("POST", "/payments", "y", "Idempotency-Token: t")
	s.do("POST", "/payments", "01234567890", "Idempotency-Key: b")
	s.do("GET", "/other", "")
	s.do("GET", "/idempotency-policy", "")
	s.wantMetrics(
		`coatcheck_gateway_requests_total{outcome="granted",route="POST /payments"} 1`,
		`coatcheck_gateway_requests_total{outcome="replay",route="POST /payments"} 1`,
		`coatcheck_gateway_requests_total{outcome="mismatch",route="POST /payments"} 1`,
		`coatcheck_gateway_requests_total{outcome="key_error",route="POST /payments"} 1`,
		`coatcheck_gateway_requests_total{outcome="unknown_token",route="POST /payments"} 1`,
		`coatcheck_gateway_requests_total{outcome="bad_request",route="POST /payments"} 1`,
		`coatcheck_gateway_requests_total{outcome="in_progress",route="POST /payments"} 0`,
		`coatcheck_gateway_requests_total{outcome="in_doubt",route="POST /payments"} 0`,
		`coatcheck_gateway_requests_total{outcome="store_error",route="POST /payments"} 0`,
		`coatcheck_gateway_requests_total{outcome="unguarded",route="-"} 1`,
		`coatcheck_gateway_requests_total{outcome="own",route="-"} 1`,
		`coatcheck_gateway_upstream_failures_total{kind="timeout"} 0`,
		`coatcheck_gateway_reloads_total{result="ok"} 1`,
		`coatcheck_gateway_routes 1`,
		`coatcheck_gateway_requests_in_flight 0`,
		`coatcheck_gateway_request_duration_seconds_count{route="POST /payments"} 6`,
	)
	s.wantEnd()
}

// wantMetrics waits until /metrics has all lines. A request is counted after its answer is sent.
func (s *served) wantMetrics(lines ...string) {
	s.t.Helper()
	var missing, text string
	expect.Eventually(s.t, "GET /metrics has all lines that are wanted", func() bool {
		_, text = s.side("/metrics")
		i := slices.IndexFunc(lines, func(line string) bool { return !strings.Contains(text, line+"\n") })
		if i < 0 {
			return true
		}
		if lines[i] != missing {
			missing = lines[i]
			s.t.Logf("GET /metrics: %q is not there yet", missing)
		}
		return false
	})
}

func (s *served) spend(key string) { s.do("POST", "/payments", "x", "Idempotency-Key: "+key) }
