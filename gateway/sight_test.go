package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// The gateway and the service have to see the same of a request: what one of them sees alone makes
// two requests one, or one request two.

// newSeer starts a service that remembers the header and the Host of the last request.
func newSeer(t *testing.T) (*shop, *atomic.Pointer[http.Request]) {
	t.Helper()
	var last atomic.Pointer[http.Request]
	return newShop(t, func(w http.ResponseWriter, r *http.Request) {
		last.Store(r)
		w.WriteHeader(http.StatusCreated)
	}), &last
}

// A service that takes its host from X-Forwarded-Host is several services.
func TestHostThatTheServiceCanSeeIsCompared(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		set       func(*Config)
		first     string
		other     string
		sees      string // as X-Forwarded-Host
		sameAgain bool
	}{
		"its own Host":                       {func(*Config) {}, "Host: a.example", "Host: b.example", "", true},
		"the client's Host":                  {func(c *Config) { c.PreserveHost = true }, "Host: a.example", "Host: b.example", "a.example", false},
		"a name that a client claims":        {func(*Config) {}, "X-Forwarded-Host: a.example", "X-Forwarded-Host: b.example", "", true},
		"a name that a proxy says":           {func(c *Config) { c.TrustForwarded = true }, "X-Forwarded-Host: a.example", "X-Forwarded-Host: b.example", "a.example", false},
		"a proxy that says no name":          {func(c *Config) { c.TrustForwarded = true }, "Host: a.example", "Host: b.example", "", true},
		"a proxy that says it beside a Host": {func(c *Config) { c.TrustForwarded, c.PreserveHost = true, true }, "X-Forwarded-Host: a.example", "Host: b.example", "a.example", false},
	} {
		upstream, last := newSeer(t)
		r := start(t, upstream.URL, payments, row.set)
		r.wantStatus(r.do("POST", "/payments", "x", "Idempotency-Key: a", row.first), 201)
		expect.Equal(t, name+": X-Forwarded-Host", last.Load().Header.Get("X-Forwarded-Host"), row.sees)
		again := r.do("POST", "/payments", "x", "Idempotency-Key: a", row.other)
		if row.sameAgain {
			r.wantReplayed(again, true)
		} else {
			r.wantCode(again, api.PayloadMismatch)
		}
		upstream.wantPaid(t, 1)
	}
}

// A header that Connection lists is for the connection to the gateway. The service does not get it,
// so nothing of the request is read from it.
func TestHeadersOfTheConnectionNameNoCallerAndNoKey(t *testing.T) {
	t.Parallel()
	upstream, last := newSeer(t)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, fingerprint_headers: [X-Tenant]}, {match: POST /own, keys: own, principal: {cookie: sid}}, {match: POST /sent, keys: sent, key_header: X-Id}]`)
	pay := func(path, listed string, headers ...string) answer {
		return r.do("POST", path, "x", append(headers, "Connection: close, "+listed)...)
	}
	r.wantReplayed(pay("/payments", "authorization", "Idempotency-Key: a", "Authorization: ann"), false)
	expect.Equal(t, "Authorization that the service got", last.Load().Header.Values("Authorization"), []string(nil))
	r.wantReplayed(pay("/payments", "Authorization", "Idempotency-Key: a", "Authorization: bob"), true)
	r.wantReplayed(pay("/payments", "X-Tenant", "Idempotency-Key: a", "X-Tenant: 1"), true)
	r.wantReplayed(r.do("POST", "/payments", "x", "Idempotency-Key: a", "Authorization: ann"), false)
	r.wantCode(pay("/payments", "Idempotency-Key", "Idempotency-Key: b"), api.KeyMissing)
	r.wantCode(pay("/sent", "x-id", "X-Id: b"), api.KeyMissing)
	r.wantCode(pay("/own", "Cookie", "Idempotency-Key: b", "Cookie: sid=ann"), api.Unauthorized)
	upstream.wantPaid(t, 2)
}

// Without the client's Host a service has one operation for a path, under whatever name it is
// asked: a freer route for the path does not count under another one.
func TestPathBelongsToOneRouteWhereTheServiceDoesNotKnowTheHost(t *testing.T) {
	t.Parallel()
	const routes = "routes: [{match: POST shop.example/payments}, {match: 'POST /{path...}', guard: false}]"
	for name, row := range map[string]struct {
		set   func(*Config)
		other int
	}{
		"names are allowed":     {func(c *Config) { c.AllowedHosts = []string{"shop.example", "other.example"} }, 404},
		"the Host is preserved": {func(c *Config) { c.PreserveHost = true }, 201},
	} {
		upstream := newShop(t, nil)
		r := start(t, upstream.URL, routes, row.set)
		for _, host := range []string{"other.example", "127.0.0.1", "localhost:8081"} {
			r.wantStatus(r.do("POST", "/payments", "x", "Host: "+host), row.other)
		}
		r.wantCode(r.do("POST", "/payments", "x", "Host: shop.example"), api.KeyMissing)
		r.wantStatus(r.do("POST", "/open", "x", "Host: other.example"), 201)
		expect.Equal(t, name+": runs of the service", upstream.paid.Load(), map[int]int64{404: 1, 201: 4}[row.other])
	}
	r := start(t, newShop(t, nil).URL, payments, func(c *Config) { c.AllowedHosts = []string{"a.example", "b.example"} })
	for routes, faults := range map[string]string{
		"routes: [{match: [POST a.example/x, POST b.example/x, POST /x]}]":                                        "",
		"routes:\n- match: POST a.example/x\n- {match: POST b.example/x, guard: false}":                           "line 3: match: ",
		"routes:\n- match: POST a.example/x/{id}\n- {match: 'POST /x/{name}', required: false}":                   "line 3: match: ",
		"routes: [{match: POST a.example/x}, {match: POST b.example/y}, {match: PUT /x}, {match: 'GET /x/{id}'}]": "",
	} {
		r.write(routes)
		err := r.g.Reload()
		expect.Equal(t, "Reload with "+routes+" is refused", err != nil, faults != "")
		expect.Contains(t, "fault of "+routes, fmt.Sprint(err), faults)
	}
}

// Who names callers gets what the service gets of the way by which a client came.
func TestQuestionHasTheOriginThatTheServiceGets(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*Config){
		"by default": func(*Config) {}, "behind a proxy": func(c *Config) { c.TrustForwarded = true }, "with the Host": func(c *Config) { c.PreserveHost = true },
	} {
		who := newWhoami(t)
		upstream, last := newSeer(t)
		r := start(t, upstream.URL, `routes: [{match: POST /payments, principal: {ask: {url: "`+who.URL+`/verify", header: X-User-Id}}}]`, set)
		r.wantStatus(r.do("POST", "/payments", "x", "Idempotency-Key: a", "Cookie: session=ann", "Host: shop.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 8443",
			"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Host: outer.example", "X-Scheme: https"), 201)
		for _, header := range []string{"X-Forwarded-Proto", "X-Forwarded-For", "X-Forwarded-Port", "X-Scheme"} {
			expect.Equal(t, name+": "+header+" of the question", who.asked.Load().Header.Values(header), last.Load().Header.Values(header))
		}
		host := "shop.example"
		if name == "behind a proxy" {
			host = "outer.example"
			expect.Equal(t, name+": X-Forwarded-Proto", last.Load().Header.Get("X-Forwarded-Proto"), "https")
		}
		expect.Equal(t, name+": X-Forwarded-Host of the question", who.asked.Load().Header.Get("X-Forwarded-Host"), host)
	}
}

// All requests of a route with principal: none have one caller, and it is none that another route
// knows.
func TestCallerOfARouteWithoutCallersIsNoOtherRoutes(t *testing.T) {
	t.Parallel()
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /hooks, principal: none}, {match: POST /other-hooks, principal: none}, {match: POST /payments}]`)
	r.wantStatus(r.do("POST", "/hooks", "x", "Idempotency-Key: a"), 201)
	r.wantStatus(r.pay("a"), 201)
	r.wantCode(r.do("POST", "/other-hooks", "x", "Idempotency-Key: a", "Authorization: ann"), api.PayloadMismatch)
	upstream.wantPaid(t, 2)
}

// Services read these cookies in several ways: as Go reads one is not how the service knows its
// user.
func TestCookiesThatServicesReadInSeveralWaysNameNoCaller(t *testing.T) {
	t.Parallel()
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, `routes: [{match: POST /payments, principal: {cookie: session_id}}, {match: POST /node, principal: {cookie: connect.sid}}]`)
	n := 0
	ask := func(path string, cookies ...string) answer {
		n++
		headers := []string{fmt.Sprint("Idempotency-Key: ", n)}
		for _, cookie := range cookies {
			headers = append(headers, "Cookie: "+cookie)
		}
		return r.do("POST", path, "x", headers...)
	}
	for _, cookies := range [][]string{
		{"session_id=a; session_id=b"}, {"session_id=a;session_id=a"}, {"session_id; session_id=a"}, {"session_id;session_id=a"}, {"session_id=a", "x=1"}, {"session_id=a", "session_id=b"},
		{`session_id="a"`}, {"session_id=a b"}, {"session_id= a"}, {"session_id =a"}, {"session_id=a,b"}, {"session_id=a\\b"}, {"session_id=\u00e9"},
		{"session.id=b; session_id=a"}, {"session id=b; session_id=a"}, {"session[id=b; session_id=a"}, {"session.id=b"}, {"session_id[]=b; session_id=a"}, {"session_id[x]=b"},
		{"Session_ID=b; session_id=a"}, {"SESSION_ID=b"}, {"session%5Fid=b; session_id=a"}, {"%73ession_id=b"}, {"session_id%00x=b; session_id=a"}, {"%20session_id=b; session_id=a"},
		{`x="; session_id=a; y="`}, {`x="a\"; session_id=a; y="`}, {"x=1,session_id=b; session_id=a"}, {"x=1 session_id=b; session_id=a"}, {"x=1\tsession_id=b"}, {`x="1" session_id=b`},
	} {
		a := ask("/payments", cookies...)
		r.wantCode(a, api.Unauthorized)
		expect.Equal(t, fmt.Sprint("field of the problem for ", cookies), a.problem().Field, "Cookie")
		expect.Contains(t, "detail", a.problem().Detail, "session_id", "Nothing was done")
	}
	upstream.wantPaid(t, 0)
	for _, cookies := range [][]string{nil, {"session_id="}, {"x=session_id"}, {"my_session_id=a"}, {"session_id_x=a"}, {"x=1; session-id=a"}} {
		r.wantCode(ask("/payments", cookies...), api.Unauthorized)
	}
	upstream.wantPaid(t, 0)
	for i, cookie := range []string{
		"session_id=a", "_ga=GA1.2; session_id=a; theme=x", `consent={"a":"b","c":[1]}; session_id=a`, "x=session_id; session_id=s%3Aabc.d%2Be==", "session_id=a;x=1", `q="a b"; session_id=a; d=Mon, 1 Jan`,
	} {
		r.wantStatus(ask("/payments", cookie), 201)
		upstream.wantPaid(t, int64(i+1))
	}
	r.wantStatus(ask("/node", "connect.sid=s%3Aabc; sid=1; a=b"), 201)
	r.wantCode(ask("/node", "connect.sid=s%3Aabc; connect_sid=1"), api.Unauthorized)
}

// A gateway that is open needs no routes: what has a key is guarded.
func TestOpenGatewayWithoutRoutesGuardsRequestsWithAKey(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"unmatched: pass", "{unmatched: pass, routes: []}", "unmatched: pass\nroutes:\n"} {
		upstream := newShop(t, nil)
		r := start(t, upstream.URL, file)
		r.wantPaid(r.pay("a"), "paid 1", false)
		r.wantPaid(r.pay("a"), "paid 1", true)
		r.wantCode(r.do("POST", "/other", "x", "Idempotency-Key: a"), api.PayloadMismatch)
		r.wantStatus(r.do("POST", "/payments", "x"), 201)
		upstream.wantPaid(t, 2)
		// a stop waits for those requests, too
		expect.Equal(t, "the time to stop is longer than a request may take", r.g.stopTimeout() > upstreamTimeout, true)
	}
	for _, file := range []string{"routes: []", "unmatched: refuse", "{}", "routes:\n"} {
		_, err := ParseRoutes([]byte(file))
		expect.Equal(t, "the error of "+file+" is there", err != nil, true)
	}
}

// guard: false on a wildcard opens the gateway as far as it reaches, and that is told.
func TestUnguardedRoutesAreCounted(t *testing.T) {
	t.Parallel()
	r := serve(t, newShop(t, nil).URL, `routes: [{match: POST /payments}, {match: ['POST /{path...}', 'PUT /a/{$}', GET /b/], guard: false}, {match: ['PUT /c/', POST /d], guard: false}]`)
	ready := r.admin("/readyz", "127.0.0.1", "127.0.0.1:1").Body.String()
	expect.Contains(t, "/readyz", ready, `"unguarded_routes":4`, `"unguarded_wide_count":2`, `"unguarded_wide":["POST /{path...}","PUT /c/"]`)
	elsewhere := r.admin("/readyz", "127.0.0.1", "192.0.2.7:1").Body.String()
	expect.Contains(t, "/readyz of another machine", elsewhere, `"unguarded_routes":4`, `"unguarded_wide_count":2`)
	expect.Equal(t, "/readyz of another machine has patterns", strings.Contains(elsewhere, "path..."), false)
	r.wantMetrics(`coatcheck_gateway_unguarded_routes{wide="true"} 2`, `coatcheck_gateway_unguarded_routes{wide="false"} 2`)
}

// Who asks the gateway for a token is told where tokens come from.
func TestRefusalOfARequestForATokenSaysWhoIssuesTokens(t *testing.T) {
	t.Parallel()
	for service, want := range map[string]string{"": "coatcheck serve does, on the same Redis and prefix.", "https://tokens.example": "coatcheck serve does, on the same Redis and prefix, at https://tokens.example."} {
		r := start(t, newShop(t, nil).URL, "routes: [{match: POST /payments}]", func(c *Config) { c.TokenService = service })
		a := r.do("POST", "/token", "{}")
		r.wantCode(a, api.RouteUnknown)
		expect.Contains(t, "detail", a.problem().Detail, "The gateway issues no tokens", want)
		expect.Equal(t, "detail for another path has the hint", strings.Contains(r.do("POST", "/tokens", "{}").problem().Detail, "issues"), false)
	}
}

// Clients read on which routes a key is one operation.
func TestPolicySaysWhereAKeyIsUnique(t *testing.T) {
	t.Parallel()
	r := start(t, newShop(t, nil).URL, "routes: [{match: POST /a}, {match: POST /b, keys: own}]")
	policies := r.do("GET", "/idempotency-policy", "").body
	expect.Contains(t, "/idempotency-policy", policies, `"unique_over":"all routes of the gateway but those with a key space of their own"`, `"unique_over":"all routes of the key space own"`)
}
