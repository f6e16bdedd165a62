package gateway

import (
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// line sends a request with nothing but a request line of its own, and returns the answer's status.
func (r *rig) line(line string) int {
	r.t.Helper()
	statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
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

func TestWaysToWriteAPathShareTheScopeOfTheirRoute(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		routes string
		shared []string // lines whose key is that of POST /payments
		open   []string // lines that no route guards
	}{
		"by default": {
			`[{match: POST /payments}]`,
			[]string{"POST /Payments", "POST /PAYMENTS", "POST /payments/", "POST /Payments/", "POST //payments/", "POST /payments;v=1", "POST /%50ayments", "POST /x/../payments/", "post /payments/", "POST //h/payments", `POST /\h:1/payments`},
			[]string{"POST /payments/x", "POST /paymentsx", "GET /payments"},
		},
		"with letters told apart": {
			`[{match: POST /payments, ignore_case: false}]`,
			[]string{"POST /payments/", "POST /payments;v=1"},
			[]string{"POST /Payments", "POST /PAYMENTS/"},
		},
		"with the slash told apart": {
			`[{match: POST /payments, trailing_slash: false}]`,
			[]string{"POST /Payments", "POST /payments;v=1"},
			[]string{"POST /payments/", "POST /Payments/"},
		},
		"with capitals in the file": {
			`[{match: "POST /API/{Id}/Pay"}, {match: POST /payments}]`,
			[]string{"POST /Payments/", "POST /api/1/pay", "POST /API/1/Pay/"},
			[]string{"POST /api/x/refund"},
		},
		"beside a catch-all that lets requests pass": {
			`[{match: POST /payments}, {match: /, required: false}]`,
			[]string{"POST /Payments", "POST /payments/", "POST /payments;v=1", "post /payments", `POST /x\..\payments`, "POST /%70ayments"},
			[]string{"POST /open", "GET /payments"},
		},
		"beside a catch-all that insists": {
			`[{match: POST /payments}, {match: /}]`,
			[]string{"POST /Payments", "POST /payments/", "POST /payments;v=1", "post /payments", `POST /x\..\payments`, "POST //payments", "POST https://h//payments"},
			nil,
		},
		"with a format suffix, of which Rails makes the same route": {
			`[{match: POST /payments}, {match: /, required: false}]`,
			[]string{"POST /payments.json", "POST /Payments.XML", "POST /payments.json/", "POST //payments.a;b", "POST /payments%2ejson", "POST /payments.", "POST /x/../payments.json", "POST //h/payments.json", "POST /payments.json/."},
			[]string{"POST /.payments", "POST /payments.json/x", "POST /x.payments", "GET /payments.json"},
		},
		"with the format suffix told apart": {
			`[{match: POST /payments, format_suffix: false}]`,
			[]string{"POST /Payments", "POST /payments/"},
			[]string{"POST /payments.json", "POST /payments.json/"},
		},
		"with a format suffix beside a catch-all that insists": {
			`[{match: POST /payments}, {match: "POST /{other}"}, {match: /}]`,
			[]string{"POST /payments.json", "POST /payments.json/"},
			nil,
		},
		"with letters told apart beside a catch-all that insists": {
			`[{match: POST /payments, ignore_case: false}, {match: /}]`,
			[]string{"POST /payments/", "POST //payments", "POST ///payments//", "POST //h/payments"},
			nil,
		},
		"beside another that a host leads to": {
			`[{match: POST /payments}, {match: "POST /{other}/x"}, {match: /}]`,
			[]string{"POST //x/payments", "POST //payments", "POST //payments.json"},
			nil,
		},
		// with a slash at its end the pattern conflicts with the other, in one path of many
		"by a wildcard beside all below a path": {
			`[{match: "POST /{kind}"}, {match: POST /old/}]`,
			[]string{"POST /payments/", "POST /Payments/", "POST //payments/", "POST /payments.json/"},
			[]string{"GET /payments/", "POST /payments/x"},
		},
		"by a wildcard beside all below a path, and a catch-all that lets requests pass": {
			`[{match: "POST /{kind}"}, {match: POST /old/}, {match: /, required: false}]`,
			[]string{"POST /payments/", "POST /Payments/"},
			[]string{"GET /payments/", "POST /payments/x"},
		},
		"by a wildcard beside all below a path, and a catch-all that insists": {
			`[{match: "POST /{kind}"}, {match: POST /old/}, {match: /}]`,
			[]string{"POST /payments/", "POST /Payments/"},
			nil,
		},
		"listed with a slash alone": {
			`[{match: POST /payments/}]`,
			[]string{"POST /payments/", "POST /Payments", "POST /payments.json"},
			[]string{"GET /payments"},
		},
		"listed with a slash as well": {
			`[{match: POST /payments}, {match: POST /payments/}]`,
			[]string{"POST /payments/", "POST /Payments/"},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := newScribe(t)
			r := serve(t, upstream.url, "routes: "+tc.routes, briefIdle)
			expect.Equal(t, "POST /payments", r.keyed("POST /payments"), 200)
			for _, line := range tc.shared {
				if !strings.Contains(strings.ToLower(line), "/api/") {
					r.sharesTheKey(line)
				}
				expect.Equal(t, line+" without a key", r.line(line), 400)
			}
			heads, _ := upstream.take()
			expect.Equal(t, "requests that reached the service", len(heads), 1)
			for _, line := range tc.open {
				expect.Equal(t, line+" without a key", r.line(line), 200)
			}
		})
	}
}

// sharesTheKey fails the test unless a line with the key is the operation that has run: it gets its
// answer, or is refused where its path counts as another.
func (r *rig) sharesTheKey(line string) {
	r.t.Helper()
	if got := r.keyed(line); got != 422 && got != 200 {
		r.t.Errorf("%s with the key of another request: got %d, want 422, or 200 and no other run", line, got)
	}
}

// keyed is line with an Idempotency-Key that is always the same.
func (r *rig) keyed(line string) int {
	r.t.Helper()
	statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: once\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	if len(statuses) != 1 {
		r.t.Fatalf("%q: got the answers %v, want one", line, statuses)
	}
	return statuses[0]
}

// Two routes that differ only in what one of them does not tell apart would be two scopes for one
// operation: the file has to say that it is meant.
func TestRoutesThatDifferOnlyInCaseSayThatTheyDo(t *testing.T) {
	t.Parallel()
	_, err := ParseRoutes([]byte("routes:\n- match: POST /pay\n- match: POST /Pay\n"))
	expect.Contains(t, "two routes that differ in case", err.Error(), "line 3", "POST /pay", "ignore_case: false")
	_, err = ParseRoutes([]byte("routes:\n- {match: POST /pay, ignore_case: false}\n- {match: POST /Pay, ignore_case: false}\n"))
	expect.Error(t, "two routes that tell letters apart", err, nil)
}

// A path that the file names with its format suffix is a route of its own.
func TestRouteWithAFormatSuffixOfItsOwnIsAnother(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /report}, {match: POST /report.csv}, {match: "POST shop.example/"}]`, briefIdle)
	for _, line := range []string{"POST /report", "POST /report.csv"} {
		expect.Equal(t, line, r.keyed(line), 200)
	}
	for _, line := range []string{"POST /report.xml", "POST /report.csv.gz", "POST /report.csv/"} {
		r.sharesTheKey(line)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 2)
}

// A dot in a path that others are below is no format suffix of theirs.
func TestFormatSuffixBelowAPathWithADotIsThatOfTheRoute(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /v1.2/payments}, {match: /v1.2/, required: false}]`, briefIdle)
	expect.Equal(t, "POST /v1.2/payments", r.keyed("POST /v1.2/payments"), 200)
	for _, line := range []string{"POST /v1.2/payments.json", "POST /V1.2/Payments.xml", "POST /v1.2/payments.json/"} {
		r.sharesTheKey(line)
		expect.Equal(t, line+" without a key", r.line(line), 400)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 1)
	for _, line := range []string{"POST /v1.2/open.json", "GET /v1.2/payments.json", "POST /v1.2.json"} {
		expect.Equal(t, line+" without a key", r.line(line), 200)
	}
}

// Servers that resolve no dot segments take them for what a wildcard stands for.
func TestDotSegmentsMatchWildcards(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: "POST /{shop}/payments"}, {match: "POST /notes/of/{id}"}]`, briefIdle)
	for _, line := range []string{"POST /../payments", "POST /./payments", "POST /../Payments/", "POST /notes/of/..", "POST /notes/of/.", "POST /Notes/of/../"} {
		expect.Equal(t, line+" without a key", r.line(line), 400)
	}
	expect.Equal(t, "POST /x/../open without a key", r.line("POST /x/../open"), 200)
}
