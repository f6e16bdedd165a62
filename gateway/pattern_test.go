package gateway

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Each of these was taken, was listed as guarded, and guarded nothing.
func TestPatternsOfOtherRoutersAreRefusedWithWhatIsMeant(t *testing.T) {
	for pattern, want := range map[string]string{
		"POST [::1]/pay":                `did you mean "POST /pay"?`,
		"POST /orders/:id":              `did you mean "POST /orders/{id}"?`,
		"POST /orders/:id/lines/:line":  `did you mean "POST /orders/{id}/lines/{line}"?`,
		"/orders/:id":                   `did you mean "/orders/{id}"?`,
		"POST shop.example/orders/:id":  `did you mean "POST shop.example/orders/{id}"?`,
		"POST /orders/:id?":             `did you mean "POST /orders/{id}"?`,
		`POST /orders/:id(\d+)`:         `did you mean "POST /orders/{id}"?`,
		"POST /files/:path*":            `did you mean "POST /files/{path...}"?`,
		"POST /orders/*":                `did you mean "POST /orders/{rest...}"?`,
		"POST /orders/**":               `did you mean "POST /orders/{rest...}"?`,
		"POST /orders/(.*)":             `did you mean "POST /orders/{rest...}"?`,
		"POST /orders/*path":            `did you mean "POST /orders/{path...}"?`,
		"POST /orders/*/lines":          `did you mean "POST /orders/{any}/lines"?`,
		"POST /orders*":                 `"*" stands in no path`,
		"POST *":                        "match: parsing",
		"POST /orders?draft=0":          `did you mean "POST /orders"?`,
		"POST /orders#new":              `did you mean "POST /orders"?`,
		"POST /orders/{id}?draft=0":     `did you mean "POST /orders/{id}"?`,
		"POST /orders/<id>":             `did you mean "POST /orders/{id}"?`,
		"POST /orders/<int:id>":         `did you mean "POST /orders/{id}"?`,
		"POST /orders/[id]":             `did you mean "POST /orders/{id}"?`,
		"POST /orders/[...rest]":        `did you mean "POST /orders/{rest...}"?`,
		"POST /orders/{id:[0-9]+}":      `did you mean "POST /orders/{id}"?`,
		"POST /orders/{id:int}":         `did you mean "POST /orders/{id}"?`,
		"POST /orders/{id?}":            `did you mean "POST /orders/{id}"?`,
		"POST /orders/{*rest}":          `did you mean "POST /orders/{rest...}"?`,
		"POST /orders/{proxy+}":         `did you mean "POST /orders/{proxy...}"?`,
		"POST ^/orders$":                `"^" is no host`,
		"POST /orders$":                 `did you mean "POST /orders"?`,
		`POST /orders/\d+`:              `"\\" stands in no path`,
		"POST ~ ^/orders":               "is no host",
		"POST *.example.com/orders":     `"*.example.com" is no host`,
		"POST shop.example:8080/orders": `"shop.example:8080" is no host`,
		"POST https://shop.example/x":   `did you mean "POST shop.example/x"?`,
		"POST /orders /refunds":         `" " stands in no path`,
		"POST /orders, PUT /orders":     `" " stands in no path`,
		"PSOT /orders/{id}":             `"PSOT" is no method: did you mean "POST"?`,
		"POTS /orders":                  `did you mean "POST"?`,
		"POSTS /orders":                 `did you mean "POST"?`,
		"UPDATED /orders":               `leave the method out`,
		"Post /orders":                  `did you mean "POST"?`,
		"post /orders":                  `did you mean "POST"?`,
		"POST,PUT /orders":              "one route has one method",
		"POST|PUT /orders":              "one route has one method",
		"* /orders":                     "leave the method out",
		"ANY /orders":                   "leave the method out",
		"CONNECT /orders":               "CONNECT asks for no path",
		"POST //orders":                 "unclean path can never match",
		"POST /orders/../x":             "unclean path can never match",
		"POST /./orders":                "unclean path can never match",
		"POST /orders/.":                "unclean path can never match",
		"GET /idempotency-policy":       "the gateway answers this path itself",
		"GET /problems/lock-held":       "the gateway answers this path itself",
		"POST api/v1":                   `did you mean "POST /api/v1"?`,
		"payments/":                     `did you mean "/payments/"?`,
		"POST shop.example./pay":        `did you mean "POST shop.example/pay"?`,
		"POST /orders/.+":               `did you mean "POST /orders/{rest...}"?`,
		"POST /orders/$id":              `did you mean "POST /orders/{id}"?`,
		"POST /orders/$1/pay":           `did you mean "POST /orders/{p1}/pay"?`,
		"POST /a,/b":                    "one route has one path",
		"POST /orders\u200b":            "U+200B",
		"POST\u00a0/orders":             "U+00A0",
		"POST /orders%zz":               "no request can have this host and path",
	} {
		_, err := ParseRoutes([]byte("routes:\n  - match: '" + pattern + "'\n"))
		if err == nil || !strings.Contains(err.Error(), "line 2: match: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRoutes of match: %s: got error %v, want one of line 2 that says %s", pattern, err, want)
		}
	}
}

func TestPatternsWithUnusualTextOfTheirOwnAreTaken(t *testing.T) {
	upstream := newShop(t, nil)
	for pattern, target := range map[string]string{
		"POST /orders/%3Aid":       "/orders/:id",
		"POST /orders/%2A":         "/orders/*",
		"POST /orders%3Fx":         "/orders%3Fx",
		"POST /orders:cancel":      "/orders:cancel",
		"POST /orders/a:b":         "/orders/a:b",
		"POST /$batch":             "/$batch",
		"POST /Orders(5)/Pay":      "/Orders(5)/Pay",
		"POST /orders/{$}":         "/orders/",
		"POST /{a}/{b...}":         "/x/y/z",
		"POST /caf\u00e9":          "/caf%C3%A9",
		"POST /a;v=1":              "/a;v=1",
		"POST  /orders":            "/orders",
		"POST 127.0.0.1/orders":    "/orders",
		"POST /a,b":                "/a,b",
		"POST /idempotency-policy": "/idempotency-policy",
		"/idempotency-policy":      "/idempotency-policy",
		"/":                        "/x",
	} {
		r := start(t, upstream.URL, "routes:\n  - match: '"+pattern+"'\n")
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
