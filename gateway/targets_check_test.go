//go:build check

package gateway

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// targets are request lines that some server may take for POST /payments, and the hosts that go
// with them.
var targets = []string{
	"POST /payments HTTP/1.1", "POST /Payments HTTP/1.1", "POST /payments/ HTTP/1.1", "POST //payments HTTP/1.1", "POST ///payments// HTTP/1.1", "POST //h/payments HTTP/1.1", "POST //h:1/payments HTTP/1.1", "POST //u@h/payments HTTP/1.1",
	"POST x:http://h/payments HTTP/1.1", "POST x:/payments HTTP/1.1", "POST http:payments HTTP/1.1", "POST http:/payments HTTP/1.1", "POST http:///payments HTTP/1.1", "POST http://h/payments HTTP/1.1", "POST HTTP://H/Payments/ HTTP/1.1", "POST https://h//payments HTTP/1.1", "POST ftp://h/payments HTTP/1.1", "POST http://u:p@h/payments HTTP/1.1", "POST http://h?/payments HTTP/1.1", "POST http://h#/payments HTTP/1.1",
	"POST h:80 HTTP/1.1", "POST * HTTP/1.1", "OPTIONS * HTTP/1.1", "CONNECT h:80 HTTP/1.1", "CONNECT /payments HTTP/1.1", "POST payments HTTP/1.1", "POST ?x HTTP/1.1", "POST  /payments HTTP/1.1", "POST\t/payments HTTP/1.1", "POST /payments  HTTP/1.1", "POST /payments\tHTTP/1.1", "POST /payments x HTTP/1.1",
	"POST /payments/. HTTP/1.1", "POST /./payments HTTP/1.1", "POST /x/../payments HTTP/1.1", "POST /x/%2e%2e/payments HTTP/1.1", "POST /%2e/payments HTTP/1.1", "POST /.%2fpayments HTTP/1.1", "POST /../payments HTTP/1.1", "POST /x/..;/payments HTTP/1.1", "POST /payments/x/.. HTTP/1.1", "POST /payments/x/../ HTTP/1.1",
	"POST /%2Fpayments HTTP/1.1", "POST /payments%2f HTTP/1.1", "POST %2fpayments HTTP/1.1", "POST /%5cpayments HTTP/1.1", "POST /\\payments HTTP/1.1", "POST \\payments HTTP/1.1", "POST /x\\..\\payments HTTP/1.1", "POST /\\h\\payments HTTP/1.1",
	"POST /payments;v=1 HTTP/1.1", "POST /;v=1/payments HTTP/1.1", "POST /payments; HTTP/1.1", "POST /payments%3bv HTTP/1.1", "POST /payments;/ HTTP/1.1",
	"POST /pay%6dents HTTP/1.1", "POST /%70%61yments HTTP/1.1", "POST /pay%256dents HTTP/1.1", "POST /payments% HTTP/1.1", "POST /payments%zz HTTP/1.1", "POST /payments%00 HTTP/1.1", "POST /payments%20 HTTP/1.1", "POST /%20payments HTTP/1.1", "POST /payments+ HTTP/1.1", "POST /payments%0a HTTP/1.1", "POST /pa%u0079ments HTTP/1.1", "POST /%c0%afpayments HTTP/1.1", "POST /pay\u017fments HTTP/1.1",
	"POST /payments.json HTTP/1.1", "POST /payments.json/ HTTP/1.1", "POST /Payments.a;b HTTP/1.1", "POST /payments%2ejson HTTP/1.1", "POST /payments. HTTP/1.1", "POST /payments.a.b HTTP/1.1", "POST /payments/.json HTTP/1.1",
	"POST /payments? HTTP/1.1", "POST /payments?a=b HTTP/1.1", "POST /payments#x HTTP/1.1", "POST /payments?x#y HTTP/1.1", "POST /payments%3fx HTTP/1.1", "POST /payments%23x HTTP/1.1", "POST /?/payments HTTP/1.1", "POST /x?/../payments HTTP/1.1",
	"post /payments HTTP/1.1", "PoST /payments HTTP/1.1", "POST /payments HTTP/1.0", "POST /payments", "POST /payments HTTP/1.2", "POST /payments HTTP/2.0", "POST /payments HTTP/0.9", "POST /payments http/1.1", "PUT /payments HTTP/1.1", "GET /payments HTTP/1.1", "HEAD /payments HTTP/1.1", "POSTS /payments HTTP/1.1",
}

var hosts = []string{"x", "", "X.", "x:80", "h", "[::1]", "[::1]:80", "x/payments", "x?", "x#", "u@x", "x, y", "/payments"}

// parts are what a mutation puts in.
var parts = []string{
	"/", "//", "\\", "%2f", "%5c", "%2F", "/./", "/../", "/x/..", "..;", ";v=1", ";", ".", "..", ".json", "%2e", "%", "%25", "%00", "%20", "%09", "%3b", "%3f", "%23", "?", "?x", "#", "#x", " ", "\t", "+", "@", ":", "http://h", "HTTP/1.1", "x:", "//h", "payments", "/payments", "PAYMENTS", "\x00", "\x7f", "\u00e9", "\u212a",
}

// mutate changes a request line in one to four places.
func mutate(random *rand.Rand, line string) string {
	for range 1 + random.IntN(4) {
		at := random.IntN(len(line) + 1)
		switch random.IntN(5) {
		case 0, 1:
			line = line[:at] + parts[random.IntN(len(parts))] + line[at:]
		case 2:
			if at < len(line) {
				line = line[:at] + fmt.Sprintf("%%%02x", line[at]) + line[at+1:]
			}
		case 3:
			if at < len(line) {
				line = line[:at] + string(line[at]^0x20) + line[at+1:]
			}
		case 4:
			if at < len(line) {
				line = line[:at] + line[at+1:]
			}
		}
	}
	return line
}

// named are routes files that name POST /payments: alone, in a gateway that is open, beside a route
// for everything that insists on a key, and beside one that a key is optional on.
var named = []string{
	`routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}]`,
	`{unmatched: pass, routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}]}`,
	`routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}, {match: /}]`,
	`routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}, {match: /, required: false}]`,
}

// needsKey is how many of the routes files let nothing unsafe pass without a key but what the
// client writes as another path: those after it are open, by what they say.
func needsKey(routes int) bool { return routes%2 == 0 }

// prober sends each request line through a gateway to a service of each framework.
type prober struct {
	services []*service
	rigs     [][]*rig // of each service, one for each routes file
	client   *http.Client
	sent     int
}

func newProber(t testing.TB, of []framework) *prober {
	t.Helper()
	p := &prober{services: startAll(t, of), client: &http.Client{Timeout: patience}}
	t.Cleanup(p.client.CloseIdleConnections)
	for _, s := range p.services {
		var rigs []*rig
		for _, routes := range named {
			r := start(t, s.url, routes, quiet)
			rigs = append(rigs, r)
			expect.Equal(t, s.name+": POST /payments", sayTo(t, r.url, "POST /payments HTTP/1.1", "Host: x", "Idempotency-Key: first"), 201)
			expect.Equal(t, s.name+": runs of POST /payments", s.take(t, p.client), map[string]int{"first": 1})
		}
		p.rigs = append(p.rigs, rigs)
	}
	return p
}

// probe sends a request without a key, and then twice with the key of a payment, on either side of
// the payment itself, under one of the routes files. No payment may run twice for a key; nor
// without one, unless the file says so.
func (p *prober) probe(t testing.TB, routes int, line, host string, headers ...string) {
	t.Helper()
	clean := strings.NewReplacer("\r", "", "\n", "")
	line, host = clean.Replace(line), "Host: "+clean.Replace(host)
	p.sent++
	key := fmt.Sprint("Idempotency-Key: key-", p.sent)
	var all sync.WaitGroup
	for i, s := range p.services {
		all.Go(func() {
			url := p.rigs[i][routes].url
			other := append([]string{host}, headers...)
			keyed := slices.Concat(other, []string{key})
			statuses := []int{
				sayTo(t, url, line, other...), sayTo(t, url, line, keyed...), sayTo(t, url, "POST /payments HTTP/1.1", host, key), sayTo(t, url, line, keyed...),
			}
			for ran, times := range s.take(t, p.client) {
				if ran == "" && needsKey(routes) || ran != "" && times > 1 {
					t.Errorf("%s behind %s: %q with %q and POST /payments ran the payment %d times for the key %q, want once for a key and never for none; statuses of the line, the line with a key, POST /payments with it, the line with it: %v",
						s.name, named[routes], line, other, times, ran, statuses)
				}
			}
		})
	}
	all.Wait()
}

// misled are headers by which a service may take another path or method.
var misled = map[string][]string{
	"POST /x/payments HTTP/1.1": {"SCRIPT_NAME: /x", "Script-Name: /x", "X-Script-Name: /x", "X-Forwarded-Prefix: /x"},
	"POST /other HTTP/1.1":      {"X-Original-URL: /payments", "X-Rewrite-URL: /payments", "PATH_INFO: /payments", "Path-Info: /payments", "X-Original-Url: /payments"},
	"PUT /payments HTTP/1.1":    {"X-HTTP-Method-Override: POST", "X-HTTP-Method: POST", "X-Method-Override: POST", "X_HTTP_METHOD_OVERRIDE: POST"},
	"GET /payments HTTP/1.1":    {"X-HTTP-Method-Override: POST"},
}

// However a client writes the request line, the service behind the gateway runs a payment only for
// a key, and once, in a gateway that is closed and in one that is open. With -short three routes
// files fewer are tried with the lines that no service has taken for another.
func TestNothingReachesAServiceTwiceUnderOneKey(t *testing.T) {
	p := newProber(t, frameworks)
	for routes := range named {
		if testing.Short() && routes > 1 {
			break
		}
		for _, line := range targets {
			p.probe(t, routes, line, "x")
		}
		for line, headers := range misled {
			for _, header := range headers {
				p.probe(t, routes, line, "x", header)
			}
		}
	}
	for _, host := range hosts {
		p.probe(t, 0, "POST /payments HTTP/1.1", host)
		p.probe(t, 1, "POST /payments HTTP/1.0", host)
	}
	random := rand.New(rand.NewPCG(16, 1))
	for range 200 {
		p.probe(t, random.IntN(2), mutate(random, targets[random.IntN(len(targets))]), hosts[random.IntN(3)])
	}
}

// ranFor sends a line three times with a key and once without, and returns how often each ran.
func (p *prober) ranFor(t *testing.T, i int, url, line string, headers ...string) map[string]int {
	t.Helper()
	for range 3 {
		sayTo(t, url, line, append([]string{"Host: x", "Idempotency-Key: row"}, headers...)...)
	}
	sayTo(t, url, line, append([]string{"Host: x"}, headers...)...)
	return p.services[i].take(t, p.client)
}

// Each row ran several times under one key before the gateway was closed, and still does where the
// service is asked itself: the first count is the service's, the other that behind the gateway.
func TestEachServiceThatReadsAPathInItsOwnWayRunsOnce(t *testing.T) {
	p := newProber(t, frameworks)
	rows := []struct {
		service, line string
		headers       []string
		itself        bool
	}{
		{"FastAPI on uvicorn", "POST /payments%0a HTTP/1.1", nil, true},
		{"Starlette on uvicorn", "POST /payments%0a HTTP/1.1", nil, true},
		{"Pyramid on gunicorn", "POST /payments%0a HTTP/1.1", nil, true},
		{"nginx, `location ~ ^/payments$`", "POST /payments%0a HTTP/1.1", nil, true},
		{"Flask on gunicorn", "POST /x/payments HTTP/1.1", []string{"SCRIPT_NAME: /x"}, true},
		{"Django on gunicorn", "POST /x/payments HTTP/1.1", []string{"SCRIPT_NAME: /x"}, true},
		{"Falcon on gunicorn", "POST /x/payments HTTP/1.1", []string{"SCRIPT_NAME: /x"}, true},
		{"Bottle on gunicorn", "POST /x/payments HTTP/1.1", []string{"SCRIPT_NAME: /x"}, true},
		{"Symfony 5.4", "POST /index.php/payments HTTP/1.1", nil, true},
		{"Symfony 5.4", "POST /pay.php/x HTTP/1.1", nil, true},
		{"Python, `http.server`", "POST /x/../payments HTTP/1.1", nil, true},
		{"Rails 6.1", "POST /payments.json HTTP/1.1", nil, true},
		{"Express 5", "POST /Payments/ HTTP/1.1", nil, true},
	}
	for i, s := range p.services {
		for _, row := range rows {
			if row.service != s.name {
				continue
			}
			p.sent++
			expect.Equal(t, s.name+": "+row.line+" at the service itself", p.ranFor(t, i, s.url, row.line, row.headers...), map[string]int{"row": 3, "": 1})
			for routes := range named[:2] {
				r := start(t, s.url, named[routes], quiet)
				ran := p.ranFor(t, i, r.url, row.line, row.headers...)
				if ran["row"] > 1 || ran[""] > 0 && needsKey(routes) {
					t.Errorf("%s behind %s: %s ran %v, want once at most, and never without a key", s.name, named[routes], row.line, ran)
				}
			}
		}
	}
}

// The path of the upstream's address is what no request leaves, and a script is run for all paths
// below its own.
func TestPathsBelowAScriptAndBesideThePrefix(t *testing.T) {
	p := newProber(t, frameworks)
	for i, s := range p.services {
		if s.name == "Python, `http.server`" {
			r := start(t, s.url+"/api", named[1], quiet)
			for _, line := range []string{"POST /../api/payments HTTP/1.1", "POST /%2e%2e/api/payments HTTP/1.1", "POST /x/../../api/payments HTTP/1.1", "POST /../payments HTTP/1.1"} {
				expect.Equal(t, s.name+": runs of "+line, p.ranFor(t, i, r.url, line), map[string]int{})
			}
			expect.Equal(t, s.name+": runs of POST /payments below /api", p.ranFor(t, i, r.url, "POST /payments HTTP/1.1"), map[string]int{"row": 1})
		}
		if s.name == "Symfony 5.4" {
			r := start(t, s.url, "routes: [{match: POST /pay.php}]", quiet)
			expect.Equal(t, "runs of POST /pay.php", p.ranFor(t, i, r.url, "POST /pay.php HTTP/1.1"), map[string]int{"row": 1})
			expect.Equal(t, "runs of POST /pay.php/x", p.ranFor(t, i, r.url, "POST /pay.php/x HTTP/1.1"), map[string]int{})
			for _, line := range []string{"POST /payments?_method=delete HTTP/1.1", "POST /payments?a&%5fmethod=DELETE HTTP/1.1"} {
				r := start(t, s.url, named[0], quiet)
				expect.Equal(t, "runs of "+line, p.ranFor(t, i, r.url, line), map[string]int{})
			}
		}
	}
}
