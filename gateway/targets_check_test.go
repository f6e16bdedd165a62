//go:build check

package gateway

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
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

// guarded are routes files under which POST /payments is guarded: alone, beside all that may pass,
// and beside all that is guarded as well.
var guarded = []string{
	`routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}]`,
	`routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}, {match: /, required: false}]`,
	`routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000}, {match: /}]`,
}

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
		for _, routes := range guarded {
			r := start(t, s.url, routes)
			rigs = append(rigs, r)
			expect.Equal(t, s.name+": POST /payments", sayTo(t, r.url, "POST /payments HTTP/1.1", "Host: x", "Idempotency-Key: first"), 201)
			expect.Equal(t, s.name+": runs of POST /payments", s.take(t, p.client), map[string]int{"first": 1})
		}
		p.rigs = append(p.rigs, rigs)
	}
	return p
}

// probe sends a request line without a key, and then twice with the key of a payment, on either
// side of the payment itself, under one of the routes files. No payment may run without a key, or
// twice for one.
func (p *prober) probe(t testing.TB, routes int, line, host string) {
	t.Helper()
	clean := strings.NewReplacer("\r", "", "\n", "")
	line, host = clean.Replace(line), "Host: "+clean.Replace(host)
	p.sent++
	key := fmt.Sprint("Idempotency-Key: key-", p.sent)
	var all sync.WaitGroup
	for i, s := range p.services {
		all.Go(func() {
			url := p.rigs[i][routes].url
			statuses := []int{
				sayTo(t, url, line, host), sayTo(t, url, line, host, key), sayTo(t, url, "POST /payments HTTP/1.1", host, key), sayTo(t, url, line, host, key),
			}
			for ran, times := range s.take(t, p.client) {
				if ran == "" || times > 1 {
					t.Errorf("%s behind %s: %q with %q and POST /payments ran the payment %d times for the key %q, want once for a key and never for none; statuses of the line, the line with a key, POST /payments with it, the line with it: %v",
						s.name, guarded[routes], line, host, times, ran, statuses)
				}
			}
		})
	}
	all.Wait()
}

// However a client writes the request line, the service behind the gateway runs a payment only for
// a key, and once.
func TestNoRequestLineLeadsPastTheGuard(t *testing.T) {
	p := newProber(t, frameworks)
	for routes := range guarded {
		for _, line := range targets {
			p.probe(t, routes, line, "x")
		}
	}
	for _, host := range hosts {
		p.probe(t, 0, "POST /payments HTTP/1.1", host)
		p.probe(t, 0, "POST /payments HTTP/1.0", host)
	}
	random := rand.New(rand.NewPCG(16, 1))
	for range 200 {
		p.probe(t, random.IntN(len(guarded)), mutate(random, targets[random.IntN(len(targets))]), hosts[random.IntN(3)])
	}
}

// The table in docs/gateway.md says what each framework takes for POST /payments, and the gateway
// guards all of it.
func TestFrameworksTakeWhatTheDocumentsSay(t *testing.T) {
	columns, rows := frameworkTable(t)
	p := newProber(t, frameworks)
	for i, s := range p.services {
		row, isThere := rows[s.name]
		if !isThere {
			t.Errorf("docs/gateway.md: the table has no row %q; it has %q", s.name, slices.Sorted(maps.Keys(rows)))
			continue
		}
		for at, column := range columns {
			line := column
			if !strings.Contains(line, " ") {
				line = "POST " + line
			}
			status := sayTo(t, s.url, line+" HTTP/1.1", "Host: x", "Idempotency-Key: table")
			got := "no"
			if ran := s.take(t, p.client); ran["table"] > 0 {
				got = "yes"
			} else if status >= 300 && status < 400 {
				got = "redirect"
			}
			expect.Equal(t, s.name+": the payment runs for "+line, got, row[at])
			if got == "yes" {
				expect.Equal(t, s.name+": the gateway's answer to "+line+" without a key", sayTo(t, p.rigs[i][0].url, line+" HTTP/1.1", "Host: x"), 400)
			}
		}
	}
}

// frameworkTable reads the table: the ways to write the request that are its columns, and the cells
// of each row by its name, without the rows that are from documentation.
func frameworkTable(t *testing.T) (columns []string, rows map[string][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "gateway.md"))
	expect.MustEqual(t, "the error of reading the page", err, nil)
	_, table, isThere := strings.Cut(string(text), "\n| | `/Payments` |")
	if !isThere {
		t.Fatal("docs/gateway.md: there is no table that begins with | | `/Payments` |")
	}
	rows = map[string][]string{}
	for n, line := range strings.Split("| | `/Payments` |"+table, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch n {
		case 0:
			for _, cell := range cells {
				columns = append(columns, strings.Trim(cell, "`"))
			}
		case 1:
		default:
			rows[cells[0]] = cells[1:]
		}
	}
	return columns, rows
}
