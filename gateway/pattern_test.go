package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Each of these is one of another router, or one that net/http refuses: it would name no request
// that its writer has in mind.
func TestPatternsThatNameNoRequestAreRefused(t *testing.T) {
	const path, host, method = "stands in no path", "is no host", "is no method"
	for pattern, want := range map[string]string{
		"POST [::1]/pay": host, "POST ^/orders$": host, "POST ~ ^/orders": host, "POST *.example.com/orders": host, "POST shop.example:8080/orders": host,
		"POST https://shop.example/x": host, "POST api/v1": host, "payments/": host, "POST shop.example./pay": host, "POST Shop.Example/pay": host,
		"POST sh\u043ep.example/pay": host, "POST shop%2eexample/pay": host, "POST {id}/pay": host, "POST shop,pay.example/pay": host,
		"POST /orders/:id": path, "/orders/:id": path, "POST /orders/:id?": path, "POST /files/:path*": path, "POST /orders/*": path, "POST /orders/(.*)": path,
		"POST /orders/*/lines": path, "POST /orders*": path, "POST /orders?draft=0": path, "POST /orders#new": path, "POST /orders/<int:id>": path,
		"POST /orders/[id]": path, "POST /orders/{id:[0-9]+}": path, "POST /orders/{id?}": path, "POST /{/:id}": path, "POST /orders/{id*2}": path,
		"POST /orders/{*rest}": path, "POST /orders/{proxy+}": path, `POST /orders/\d+`: path, "POST /orders /refunds": path, "POST /orders%zz": path,
		"POST /orders\u200b": path, "POST /orders\u2215pay": path, "POST /caf\u00e9": path, "POST /orders/{id}.json": path, "POST /orders/x{id}": path,
		"POST /orders/{id": path, "POST /orders/{}": path, "POST /orders/{ id }": path, "POST /orders/{order-id}": path, "POST /orders/{1}": path, "POST /orders ": path,
		"PSOT /orders/{id}": method, "post /orders": method, "POST,PUT /orders": method, "* /orders": method, "ANY /orders": method, "CONNECT /orders": method,
		" /orders": "", "POST": "it has no path", "POST *": "it has no path", "orders": "it has no path",
		"POST //orders": "segments that are empty", "POST /orders/../x": "segments that are empty", "POST /orders/.": "segments that are empty",
		"GET /idempotency-policy": "the gateway answers this path itself", "GET /problems/lock-held": "the gateway answers this path itself",
		"POST /a;b": `without encoded: [";"]`, "POST /a%3Bb": `without encoded: [";"]`, "POST /a%2fb/{id}": `without encoded: ["/"]`,
		"PUT /a%5Cb": "without encoded", "POST /a%0A": "control character", "POST /a/%2E%2e/b": "dot segment", "POST /a%FF": "not UTF-8",
		"POST /files/{rest...}/x": "{...} wildcard not at end", "POST /files/{$}/x": "{$} not at end", "POST /orders/{id}/x/{id}": `duplicate wildcard name "id"`,
	} {
		_, err := ParseRoutes([]byte("routes:\n  - match: '" + pattern + "'\n"))
		if want == "" {
			expect.Equal(t, "ParseRoutes of match: "+pattern, err, nil)
			continue
		}
		expect.Contains(t, "ParseRoutes of match: "+pattern, fmt.Sprint(err), fmt.Sprintf("line 2: match: %q: ", pattern), want)
		expect.Equal(t, pattern+": the error guesses what is meant", strings.Contains(fmt.Sprint(err), "did you mean"), false)
	}
}

// Of two patterns that do not go together both are named.
func TestPatternsThatDoNotGoTogetherAreBothNamed(t *testing.T) {
	for name, row := range map[string]struct{ first, second string }{
		"twice":         {"POST /orders", "POST /orders"},
		"another name":  {"POST /orders/{id}", "POST /orders/{no}"},
		"each its part": {"POST /a/{x}/b", "POST /a/c/{y}"},
		"all below":     {"POST /{shop}/pay", "POST /shops/"},
		"fewer methods": {"/orders/new", "POST /orders/{id}"},
	} {
		_, err := ParseRoutes([]byte("routes:\n  - match: '" + row.first + "'\n  - match: [POST /other, '" + row.second + "']\n"))
		expect.Contains(t, name+": error", fmt.Sprint(err), "line 3: match: ", row.first, row.second, "conflicts with")
		expect.Equal(t, name+": the error names a source file", strings.Contains(fmt.Sprint(err), ".go:"), false)
	}
}

func TestPatternsWithUnusualTextOfTheirOwnAreTaken(t *testing.T) {
	upstream := newShop(t, nil)
	for pattern, target := range map[string]string{
		"POST /orders/%3Aid":       "/orders/:id",
		"POST /orders/%2A":         "/orders/*",
		"POST /orders%3Fx":         "/orders%3Fx",
		"POST /orders:cancel":      "/orders:cancel",
		"POST /$batch":             "/$batch",
		"POST /Orders(5)/Pay":      "/Orders(5)/Pay",
		"POST /orders/{$}":         "/orders/",
		"POST /{a}/{b...}":         "/x/y/z",
		"POST /caf%C3%A9":          "/caf%c3%a9",
		"POST  /orders":            "/orders",
		"POST /a,b":                "/a,b",
		"POST /a;b":                "/a%3bb",
		"POST /a%2Fb/{id}":         "/a%2Fb/1",
		"POST /%70ay":              "/pay",
		"POST /%7Bid%7D":           "/%7Bid%7D",
		"POST /idempotency-policy": "/idempotency-policy",
		"/idempotency-policy":      "/idempotency-policy",
		"/":                        "/x",
	} {
		r := start(t, upstream.URL, "routes:\n  - match: '"+pattern+"'\n    encoded: [\"/\", \";\"]\n")
		got := r.do("POST", target, "", "Idempotency-Key: a").status
		expect.Equal(t, "POST "+target+" under match: "+pattern, got, 201)
		expect.Equal(t, "POST "+target+" without a key under match: "+pattern, r.do("POST", target, "").status, 400)
	}
	for _, method := range []string{"PROPFIND", "QUERY", "MKCOL"} {
		if _, err := ParseRoutes([]byte("routes: [{match: " + method + " /a}]")); err != nil {
			t.Errorf("ParseRoutes of match: %s /a: got %v, want no error", method, err)
		}
	}
}
