package gateway

import (
	"fmt"
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
		"PSOT /orders/{id}":             `"PSOT" is no method; did you mean "POST /orders/{id}"?`,
		"POTS /orders":                  `did you mean "POST /orders"?`,
		"POSTS /orders":                 `did you mean "POST /orders"?`,
		"UPDATED /orders":               `leave the method out`,
		"Post /orders":                  `did you mean "POST /orders"?`,
		"post /orders":                  `did you mean "POST /orders"?`,
		"POST,PUT /orders":              "one route has one method",
		"POST|PUT /orders":              "one route has one method",
		"* /orders":                     "leave the method out",
		"ANY /orders":                   "leave the method out",
		"CONNECT /orders":               "CONNECT asks for no path",
		"POST //orders":                 `did you mean "POST /orders"?`,
		"POST /orders/../x":             `did you mean "POST /x"?`,
		"POST /./orders":                `did you mean "POST /orders"?`,
		"POST /orders/.":                `did you mean "POST /orders"?`,
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
		wantRefusedPattern(t, pattern, want)
	}
}

// What the mux itself refuses is told in words of the file, and not in those of Go's source.
func TestPatternsThatTheMuxRefusesAreToldWithWhatIsMeant(t *testing.T) {
	for pattern, want := range map[string]string{
		"POST":                      `it has no path: a method and a path belong here, such as "POST /payments"`,
		"POST *":                    `a path begins with a slash; did you mean "POST /{rest...}"?`,
		"POST orders":               `a path begins with a slash; did you mean "POST /orders"?`,
		"orders":                    `a path begins with a slash; did you mean "/orders"?`,
		"POST orders{id}":           `did you mean "POST /{id}"?`,
		"POST {id}/pay":             `a path begins with a slash; did you mean "POST /{id}/pay"?`,
		" POST /orders":             `it begins or ends with a space; did you mean "POST /orders"?`,
		"POST /orders ":             `it begins or ends with a space; did you mean "POST /orders"?`,
		"POST /orders/{id":          `a brace has no partner; did you mean "POST /orders/{id}"?`,
		"POST /orders/{id/pay":      `a brace has no partner; did you mean "POST /orders/{id}/pay"?`,
		"POST /orders/id}":          `a brace has no partner; did you mean "POST /orders/{id}"?`,
		"POST /orders/}id{":         `a brace has no partner; did you mean "POST /orders/{id}"?`,
		"POST /orders/{":            `a brace has no partner; did you mean "POST /orders/{id}"?`,
		"POST /orders/{}":           `a wildcard has a name; did you mean "POST /orders/{id}"?`,
		"POST /orders/{...}":        `a wildcard has a name; did you mean "POST /orders/{rest...}"?`,
		"POST /orders/{{id}}":       `a wildcard has one pair of braces; did you mean "POST /orders/{id}"?`,
		"POST /orders/x{id}":        `a wildcard is all that stands between two slashes; did you mean "POST /orders/{id}"?`,
		"POST /orders/{id}.json":    `a wildcard is all that stands between two slashes; did you mean "POST /orders/{id}"?`,
		"POST /orders/{id}:cancel":  `a wildcard is all that stands between two slashes; did you mean "POST /orders/{id}"?`,
		"POST /orders/{a}-{b}":      `a wildcard is all that stands between two slashes; did you mean "POST /orders/{a}"?`,
		"POST /orders/{ id }":       `a wildcard has no space; did you mean "POST /orders/{id}"?`,
		"/orders/{ id }":            `a wildcard has no space; did you mean "/orders/{id}"?`,
		"POST /orders/{order-id}":   `has letters, digits and _, and no digit first; did you mean "POST /orders/{order_id}"?`,
		"POST /orders/{order.id}":   `did you mean "POST /orders/{order_id}"?`,
		"POST /orders/{1}":          `did you mean "POST /orders/{p1}"?`,
		"POST /orders/{-}":          `did you mean "POST /orders/{id}"?`,
		"POST /files/{...rest}":     `the three dots stand after the name; did you mean "POST /files/{rest...}"?`,
		"POST /files/{rest..}":      `the three dots stand after the name; did you mean "POST /files/{rest...}"?`,
		"POST /files/{rest\u2026}":  `did you mean "POST /files/{rest...}"?`,
		"POST /files/{rest...}/x":   `{rest...} stands only at the end; did you mean "POST /files/{rest}/x"?`,
		"POST /files/{$}/x":         `{$} stands only at the end; did you mean "POST /files/x"?`,
		"POST /orders/{id}/x/{id}":  `two wildcards have the name id; did you mean "POST /orders/{id}/x/{id2}"?`,
		"POST /{a}/{a}/{a}":         `did you mean "POST /{a}/{a2}/{a3}"?`,
		"post orders/:id/x":         `did you mean "POST /orders/{id}/x"?`,
		"PO@ST /orders":             `"PO@ST" is no method; did you mean "POST /orders"?`,
		"POST /orders/{id}/../{id}": `did you mean "POST /orders/{id}"?`,
	} {
		wantRefusedPattern(t, pattern, want)
	}
}

// With a character that only looks like one of its own a pattern is plain text: it guards nothing.
func TestCharactersThatLookLikeThoseOfAPatternAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		"POST \u2215orders":            `it has the character U+2215, which only looks like "/"; did you mean "POST /orders"?`,
		"POST /orders\u2044pay":        `U+2044, which only looks like "/"; did you mean "POST /orders/pay"?`,
		"POST /orders\uff0fpay":        `U+FF0F, which only looks like "/"; did you mean "POST /orders/pay"?`,
		"POST /orders\u29f8{id}":       `U+29F8, which only looks like "/"; did you mean "POST /orders/{id}"?`,
		"POST /report\u2024csv":        `U+2024, which only looks like "."; did you mean "POST /report.csv"?`,
		"POST shop\uff0eexample/pay":   `U+FF0E, which only looks like "."; did you mean "POST shop.example/pay"?`,
		"POST shop\u3002example/pay":   `it has another dot than the plain one; did you mean "POST shop.example/pay"?`,
		"POST /orders/\uff5bid\uff5d":  `U+FF5B, which only looks like "{"; did you mean "POST /orders/{id}"?`,
		"POST /orders/{id\ufe5c":       `U+FE5C, which only looks like "}"; did you mean "POST /orders/{id}"?`,
		"POST /orders/\u2774id\u2775":  `did you mean "POST /orders/{id}"?`,
		"POST /orders/\uff1aid":        `U+FF1A, which only looks like ":"; did you mean "POST /orders/{id}"?`,
		"POST /orders/\uff0a":          `U+FF0A, which only looks like "*"; did you mean "POST /orders/{rest...}"?`,
		"POST /orders\uff1fdraft=0":    `did you mean "POST /orders"?`,
		"P\u041eST /orders":            `U+041E, and a method has plain letters`,
		"POST /orders\ufe0f":           "U+FE0F, which is not to be seen",
		"POST /orders\u3164":           "U+3164, which is not to be seen",
		"POST b\u00fccher.example/pay": "is no host: a name in another script is written in its form with xn--",
		"POST sh\u043ep.example/pay":   "is no host: a name in another script is written in its form with xn--",
		"POST Shop.Example/pay":        `a host has small letters; did you mean "POST shop.example/pay"?`,
		"POST shop,pay.example/pay":    `"shop,pay.example" is no host`,
		"POST shop%2eexample/pay":      `"shop%2eexample" is no host`,
	} {
		wantRefusedPattern(t, pattern, want)
	}
}

func wantRefusedPattern(t *testing.T, pattern, want string) {
	t.Helper()
	_, err := ParseRoutes([]byte("routes:\n  - match: '" + pattern + "'\n"))
	expect.Contains(t, "ParseRoutes of match: "+pattern, fmt.Sprint(err), fmt.Sprintf("line 2: match: %q: ", pattern), want)
}

// Of two patterns that do not go together both are named, with their lines, and what to write.
func TestPatternsThatDoNotGoTogetherAreBothNamed(t *testing.T) {
	for name, row := range map[string]struct {
		first, second string
		want          []string
	}{
		"twice":            {"POST /orders", "POST /orders", []string{`"POST /orders" stands in line 2 already: give one up`}},
		"another name":     {"POST /orders/{id}", "POST /orders/{no}", []string{`"POST /orders/{no}" matches the same requests as "POST /orders/{id}" in line 2: give one up`}},
		"each its part":    {"POST /a/{x}/b", "POST /a/c/{y}", []string{`"POST /a/c/{y}" and "POST /a/{x}/b" in line 2 both match "/a/c/b", and neither is the more specific`, `did you mean "POST /a/c/b"?`}},
		"all below":        {"POST /{shop}/pay", "POST /shops/", []string{`"POST /shops/" and "POST /{shop}/pay" in line 2 both match "/shops/pay"`, `did you mean "POST /shops/pay"?`}},
		"under a host":     {"POST a.example/{x}/b", "POST a.example/c/{y}", []string{`did you mean "POST a.example/c/b"?`}},
		"fewer methods":    {"/orders/new", "POST /orders/{id}", []string{`"POST /orders/{id}" and "/orders/new" in line 2 both match`, "one has fewer methods, and the other fewer paths", `did you mean "POST /orders/new" in line 2?`}},
		"more methods":     {"POST /orders/", "/orders/{id}", []string{`did you mean "POST /orders/{id}"?`}},
		"the third of all": {"POST /orders/{id}", "PUT /x/{a}'\n  - match: 'POST /orders/{b}", []string{"line 4: ", `the same requests as "POST /orders/{id}" in line 2`}},
	} {
		_, err := ParseRoutes([]byte("routes:\n  - match: '" + row.first + "'\n  - match: '" + row.second + "'\n"))
		expect.Contains(t, name+": error", fmt.Sprint(err), append(row.want, ": match: ")...)
		expect.Equal(t, name+": the error names a source file", strings.Contains(fmt.Sprint(err), ".go:"), false)
	}
}

func TestPatternsWithUnusualTextOfTheirOwnAreTaken(t *testing.T) {
	upstream := newShop(t, nil)
	for pattern, target := range map[string]string{
		"POST /orders/%3Aid":        "/orders/:id",
		"POST /orders/%2A":          "/orders/*",
		"POST /orders%3Fx":          "/orders%3Fx",
		"POST /orders:cancel":       "/orders:cancel",
		"POST /orders/a:b":          "/orders/a:b",
		"POST /$batch":              "/$batch",
		"POST /Orders(5)/Pay":       "/Orders(5)/Pay",
		"POST /orders/{$}":          "/orders/",
		"POST /{a}/{b...}":          "/x/y/z",
		"POST /caf\u00e9":           "/caf%C3%A9",
		"POST /a;v=1":               "/a;v=1",
		"POST  /orders":             "/orders",
		"POST 127.0.0.1/orders":     "/orders",
		"POST /a,b":                 "/a,b",
		"POST /x%EF%BC%8Fy":         "/x%EF%BC%8Fy",
		"POST /%E2%88%95":           "/%E2%88%95",
		"POST /%7Bid%7D":            "/%7Bid%7D",
		"POST /\u30ce/\u4e00\u3002": "/%E3%83%8E/%E4%B8%80%E3%80%82",
		"POST /idempotency-policy":  "/idempotency-policy",
		"/idempotency-policy":       "/idempotency-policy",
		"/":                         "/x",
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
