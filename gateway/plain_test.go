package gateway

import (
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestPathsInTheirPlainForm(t *testing.T) {
	for written, want := range map[string]string{ // "" = as it was written
		"/":                       "",
		"/payments":               "",
		"/payments/":              "",
		"/Payments.json":          "",
		"/orders/a:b@c,d=e&f+g":   "",
		"/orders/!$'()*":          "",
		"/orders/%21%24%27%28%2A": "", // as Python's quote writes it
		"/orders/a%20b%3Fc%23d":   "", // as encodeURIComponent writes it
		"/orders/a%25b":           "",
		"/caf%C3%A9":              "",
		"/caf%c3%a9":              "/caf%C3%A9",
		"/x%5bid%5d":              "/x%5Bid%5D",
		"/.well-known/x":          "",
		"/a...b/...":              "",
	} {
		path, err := readPath(written)
		if want == "" {
			want = written
		}
		expect.Equal(t, written+": why it is not plain", err, nil)
		expect.Equal(t, written+": its plain form", path.text, want)
	}
}

func TestPathsThatAreNotPlain(t *testing.T) {
	for written, why := range map[string]string{
		"":                     "begin with a slash",
		"*":                    "begin with a slash",
		"payments":             "begin with a slash",
		"//payments":           "two slashes",
		"/payments//":          "two slashes",
		"/./payments":          "dot segment",
		"/x/../payments":       "dot segment",
		"/payments/.":          "dot segment",
		"/../api/payments":     "dot segment",
		"/%2e%2e/payments":     "%2e, which is written .",
		"/x/.%2E":              "%2E, which is written .",
		"/x/..%2fpayments":     "dot segment",
		"/x%2f%2fpayments":     "two slashes",
		"/x/..%5cpayments":     "dot segment",
		"/x/..%3bx/payments":   "dot segment",
		"/pay%6dents":          "%6d, which is written m",
		"/pay%7Ements":         "%7E, which is written ~",
		"/payments;v=1":        "character ';'",
		`/payments\x`:          `character '\\'`,
		"/payments%0a":         "control character",
		"/payments%00":         "control character",
		"/payments%7f":         "control character",
		"/payments%c2%85":      "control character",
		"/payments%c0%af":      "not UTF-8",
		"/payments%ff":         "not UTF-8",
		"/payments%":           "no two hex digits",
		"/payments%4":          "no two hex digits",
		"/payments%zz":         "no two hex digits",
		"/caf\u00e9":           "percent-encoded in a path",
		"/a b":                 "percent-encoded in a path",
		"/payments#x":          "character '#'",
		"/x[id]":               "character '['",
		"/" + `a"<>^` + "`{|}": "percent-encoded in a path",
	} {
		_, err := readPath(written)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want an error that says %q", written, err, why)
		}
	}
}

// FuzzPlainPath finds no path that has two plain forms, or a plain form that is none.
func FuzzPlainPath(f *testing.F) {
	for _, path := range []string{"/payments", "/%2e%2e/x", "/caf%c3%a9", "/a%2Fb", "//", "/a;b", "/%", "/\u00e9"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, written string) {
		path, err := readPath(written)
		if err != nil {
			return
		}
		again, err := readPath(path.text)
		expect.Equal(t, written+": the plain form is plain", err, nil)
		expect.Equal(t, written+": its plain form", again, path)
		expect.Equal(t, written+": the same path but for hex digits", strings.EqualFold(path.text, written), true)
	})
}

func TestUnsafeRequestWhosePathIsNotPlainReachesNothing(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `{unmatched: pass, routes: [{match: POST /payments}, {match: "POST /files/{name}"}, {match: /open/, guard: false}]}`, briefIdle)
	for _, line := range []string{
		"POST //payments", "POST /x/../payments", "POST /%70ayments", "POST /payments;v=1", "POST /payments%0a", "POST /payments%3bv", "PUT /open/..",
		"DELETE /open/a%2fb", "post /open//", "POST /files/a%5Cb", "POST http://h//payments", "POST http://h", "POST /payments#x", `POST /\payments`,
	} {
		expect.Equal(t, line, r.line(line), 400)
		expect.Equal(t, line+" with a key", r.keyed(line), 400)
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 0)
	for _, line := range []string{"GET //payments", "GET /x/../y", "HEAD /a;b", "OPTIONS /%70", "GET /a%2fb", "GET /caf\u00e9"} {
		expect.Equal(t, line+", which is safe", r.line(line), 200)
	}
	a := r.do("POST", "/payments;v=1", "x", "Idempotency-Key: a")
	r.wantCode(a, api.PathNotPlain)
	expect.Equal(t, "field of the problem", a.problem().Field, "path")
	expect.Contains(t, "detail of the problem", a.problem().Detail, "';'", "Nothing was sent")
}

func TestDelimitersAreTakenEncodedWhereARouteAllowsThem(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: "POST /files/{name}", encoded: ["/"]}, {match: "POST /notes/{name}", encoded: ["/", ";", '\']}, {match: "POST /other/{name}"}]`, briefIdle)
	for line, want := range map[string]int{
		"POST /files/a%2fb": 200, "POST /files/a%2Fb%2Fc": 200, "POST /files/a%5Cb": 400, "POST /files/a%3Bb": 400, "POST /files/..%2fb": 400,
		"POST /files/a%2f%2fb": 400, "POST /notes/a%2fb%3bc%5cd": 200, "POST /other/a%2Fb": 400, "POST /files/a/b": 404,
	} {
		statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nIdempotency-Key: " + strings.Trim(line[5:], "/") + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		expect.Equal(t, line, statuses, []int{want})
	}
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 3)
	for _, head := range heads {
		expect.Equal(t, "hex digits in capitals in "+head, strings.Contains(head, "%2F") && !strings.Contains(strings.Split(head, "\r\n")[0], "%5c"), true)
	}
}

// A prefix of the upstream's address is what a request stays below, whatever its method.
func TestNoPathLeadsOutOfTheUpstreamsPath(t *testing.T) {
	t.Parallel()
	upstream := newScribe(t)
	r := serve(t, upstream.url+"/api", `{unmatched: pass, routes: [{match: POST /payments}]}`, briefIdle)
	for _, path := range []string{"/../api/payments", "/%2e%2e/api/payments", "/x/../../api/payments", "/../admin", "/..;/admin", "/..%2fadmin", `/..%5cadmin`} {
		expect.Equal(t, "POST "+path, r.keyed("POST "+path), 400)
		expect.Equal(t, "GET "+path, r.line("GET "+path), 400)
	}
	expect.Equal(t, "GET /a..b/c;d//e", r.line("GET /a..b/c;d//e"), 200)
	expect.Equal(t, "POST /payments", r.keyed("POST /payments"), 200)
	heads, _ := upstream.take()
	expect.Equal(t, "requests that reached the service", len(heads), 2)
	_, err := ParseUpstream("http://h/a/../b")
	expect.Contains(t, "ParseUpstream of a path with dots", err.Error(), "not plain")
}
