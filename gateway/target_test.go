package gateway

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// line sends a request with nothing but a request line of its own, and returns the answer's status.
func (r *rig) line(line string) int { return r.lineWith(line, "") }

// keyed is line with an Idempotency-Key that is always the same.
func (r *rig) keyed(line string) int { return r.lineWith(line, "Idempotency-Key: once\r\n") }

func (r *rig) lineWith(line, header string) int {
	r.t.Helper()
	statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\n" + header + "Content-Length: 0\r\nConnection: close\r\n\r\n")
	if len(statuses) != 1 {
		r.t.Fatalf("%q: got the answers %v, want one", line, statuses)
	}
	return statuses[0]
}

// net/http takes a target without a slash for an opaque URL, with an empty path: it would match no
// route and be forwarded as it came, with the client's choice of host.
func TestRequestTargetsOfNoKnownFormAreRefused(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /payments}]`, briefIdle)
	for _, target := range []string{
		"x:http://h/payments", "x:/payments", "x:payments", "http:payments", "http:/payments", "http:///payments", "https:payments", "HTTP:payments",
		"ftp://h/payments", "x://h/payments", "file:///payments", "h:80", "payments", "*", "?a=b", "", "http://", "http://u:p@h/payments", "http://u@h/payments",
	} {
		expect.Equal(t, strconv.Quote("POST "+target), r.line("POST "+target), 400)
		expect.Equal(t, strconv.Quote("GET "+target), r.line("GET "+target), 400)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 0)
	for line, want := range map[string]int{"GET http://h/open": 200, "GET HTTPS://h/open": 200, "GET http://h": 200, "OPTIONS *": 200, "GET /x:http://h/open": 200, "GET //open": 200} {
		expect.Equal(t, line, r.line(line), want)
	}
}

func TestUnsafeRequestThatNoRouteNamesIsRefused(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: [POST /payments, POST /refunds/]}, {match: PUT /open, guard: false}]`, briefIdle)
	for _, line := range []string{
		"POST /Payments", "POST /payments/", "POST /payments.json", "POST /payments/x", "post /payments", "POSTS /payments", "PUT /payments", "DELETE /payments",
		"POST /refunds", "POST /open", "PUT /open/", "POST /", "PATCH http://h/payments", "PROPFIND /x", "M-SEARCH /x",
	} {
		expect.Equal(t, line, r.line(line), 404)
		expect.Equal(t, line+" with a key", r.keyed(line), 404)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 0)
	for _, line := range []string{"GET /Payments", "HEAD /x", "OPTIONS /x", "TRACE /x", "PUT /open"} {
		expect.Equal(t, line, r.line(line), 200)
	}
	for _, line := range []string{"POST /payments", "POST /refunds/", "POST /refunds/1"} {
		expect.Equal(t, line+" without a key", r.line(line), 400)
	}
	a := r.do("DELETE", "/orders/42", "")
	r.wantCode(a, api.RouteUnknown)
	expect.Contains(t, "detail of the problem", a.problem().Detail, `match: "DELETE /orders/42"`, "guard: false", "Nothing was sent")
	r.wantMetrics(`coatcheck_gateway_requests_total{outcome="route_unknown",route="-"} 31`, `coatcheck_gateway_unmatched_pass 0`)
}

// Under unmatched: pass a request with a key runs once, whether a route names it or not; and under
// one key, however its path is written.
func TestKeyIsHeldWhereUnmatchedRequestsPass(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `{unmatched: pass, routes: [{match: POST /payments}]}`, briefIdle)
	for _, line := range []string{"POST /open", "POST /open", "POST /payments/x", "DELETE /payments"} {
		expect.Equal(t, line+" without a key", r.line(line), 200)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests without a key that reached the service", len(heads), 4)
	expect.Equal(t, "POST /Payments", r.keyed("POST /Payments"), 200)
	expect.Equal(t, "POST /Payments again", r.keyed("POST /Payments"), 200)
	for _, line := range []string{"POST /payments", "POST /payments/", "post /payments", "DELETE /payments", "POST /payments.json"} {
		expect.Equal(t, line+" with the key of another request", r.keyed(line), 422)
	}
	heads, _ = upstream.take()
	expect.Equal(t, "requests with a key that reached the service", len(heads), 1)
	r.wantMetrics(`coatcheck_gateway_requests_total{outcome="granted",route="unmatched"} 1`, `coatcheck_gateway_unmatched_pass 1`)
	expect.Contains(t, "/readyz", r.admin("/readyz", "127.0.0.1", "127.0.0.1:1").Body.String(), `"unmatched":"pass"`)
}

// A key is one operation on all routes but those with keys of their own.
func TestKeySpacesOfRoutes(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /a}, {match: [POST /b, POST /c]}, {match: POST /d, keys: own}, {match: POST /e, keys: own}]`, briefIdle)
	for _, row := range []struct {
		line string
		want int
	}{{"POST /a", 200}, {"POST /a?x", 422}, {"POST /b", 422}, {"POST /c", 422}, {"POST /d", 200}, {"POST /e", 422}, {"POST /a", 200}} {
		expect.Equal(t, row.line, r.keyed(row.line), row.want)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 2)
}

// Hex digits of either case are one path, and a repeat with the other case gets its answer.
func TestHexDigitsOfEitherCaseAreOneRequest(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: "POST /orders/{id}"}]`, briefIdle)
	for _, line := range []string{"POST /orders/caf%c3%a9?x=%2f", "POST /orders/caf%C3%A9?x=%2f", "POST http://h/orders/caf%c3%A9?x=%2f"} {
		expect.Equal(t, line, r.keyed(line), 200)
	}
	expect.Equal(t, "another query", r.keyed("POST /orders/caf%C3%A9?x=%2F"), 422)
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 1)
}

// Under several names a service may be several: the name belongs to the request where the service
// gets it.
func TestHostIsPartOfTheRequestWhereTheServiceGetsIt(t *testing.T) {
	t.Parallel()
	upstream := newShop(t, nil)
	own := start(t, upstream.URL, payments)
	its := start(t, upstream.URL, payments, func(c *Config) { c.PreserveHost = true })
	for i, r := range []*rig{own, its} {
		r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a", "Host: a.example"), "paid "+strconv.Itoa(i+1), false)
	}
	own.wantReplayed(own.do("POST", "/payments", "x", "Idempotency-Key: a", "Host: b.example"), true)
	its.wantCode(its.do("POST", "/payments", "x", "Idempotency-Key: a", "Host: b.example"), api.PayloadMismatch)
}

// A service may take these names for the one of the route, and the gateway for another.
func TestHostThatIsNotPlainReachesNothing(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, "routes: [{match: POST shop.example/payments}, {match: POST /payments, guard: false}]", func(c *Config) { c.PreserveHost = true })
	for host, want := range map[string]int{
		"shop.example:80:90": 400, "shop.example..": 400, "[shop.example]": 400, "shop%2eexample": 400, "shop.example%00": 400, ".shop.example": 400,
		"shop.example": 200, "SHOP.example.": 200, "shop.example:": 200, "other.example:8080": 200, "[::1]:80": 200, "[fe80::1%25eth0]": 200, "10.0.0.1": 200,
		"a_b": 200, "": 200,
	} {
		got := r.raw(fmt.Sprintf("POST /payments HTTP/1.1\r\nHost: %s\r\nIdempotency-Key: %x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", host, "k"+host))
		expect.Equal(t, "status under Host "+host, got, []int{want})
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 9)
}

func TestPatternWithAHostNeedsTheHostsName(t *testing.T) {
	t.Parallel()
	const routes = "routes: [{match: POST shop.example/payments}]"
	for name, set := range map[string]func(*Config){
		"nothing":               nil,
		"every name is allowed": func(c *Config) { c.AllowedHosts = []string{"*"} },
		"the host is preserved": func(c *Config) { c.PreserveHost = true },
		"its name is allowed":   func(c *Config) { c.AllowedHosts = []string{"shop.example"} },
	} {
		r := start(t, newShop(t, nil).URL, payments, func(c *Config) {
			if set != nil {
				set(c)
			}
		})
		r.write(routes)
		err := r.g.Reload()
		refused := name == "nothing" || name == "every name is allowed"
		expect.Equal(t, name+": the file is refused", err != nil, refused)
		if refused {
			expect.Contains(t, name+": error", err.Error(), "line 1", "shop.example", "--preserve-host", "--allowed-hosts")
			continue
		}
		r.wantCode(r.do("POST", "/payments", "x", "Idempotency-Key: a", "Host: other.localhost"), api.RouteUnknown)
		r.wantPaid(r.do("POST", "/payments", "x", "Idempotency-Key: a", "Host: SHOP.example.:80"), "paid 1", false)
	}
}
