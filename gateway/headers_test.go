package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// misleading are headers by which a service may take another path, method, prefix or scheme.
var misleading = []string{
	"SCRIPT_NAME", "X_Forwarded_Proto", "Script-Name", "X-Script-Name", "X-Original-Url", "X-Rewrite-Url", "X-Http-Method", "X-Http-Method-Override",
	"X-Method-Override", "X-Forwarded-Prefix", "X-Dotted.Name",
}

// fromProxy are headers that a proxy in front writes.
var fromProxy = []string{"X-Forwarded-Ssl", "X-Forwarded-Scheme", "X-Forwarded-Port", "X-Scheme", "Front-End-Https"}

func TestHeadersThatMisleadAServiceAreDropped(t *testing.T) {
	for name, row := range map[string]struct {
		set          func(*Config)
		passes, gone []string
	}{
		"by default":      {func(*Config) {}, nil, append(misleading, fromProxy...)},
		"from a proxy":    {func(c *Config) { c.TrustForwarded = true }, fromProxy, misleading},
		"that are passed": {func(c *Config) { c.PassHeaders = []string{"Script_name", "X-Script-Name"} }, []string{"X-Script-Name", "Script_name"}, []string{"X-Forwarded-Prefix"}},
	} {
		var got http.Header
		upstream := newShop(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
		r := start(t, upstream.URL, payments, row.set)
		for _, path := range []string{"/payments", "/open"} {
			headers := []string{"Idempotency-Key: a", "X-Tenant: 1"}
			for _, name := range append(append([]string{}, misleading...), fromProxy...) {
				headers = append(headers, name+": x")
			}
			r.wantStatus(r.do("POST", path, "x", headers...), 200)
			for _, header := range row.gone {
				expect.Equal(t, name+": "+header+" of "+path, got.Values(header), []string(nil))
			}
			for _, header := range row.passes {
				expect.Equal(t, name+": "+header+" of "+path, got.Values(header), []string{"x"})
			}
			expect.Equal(t, name+": X-Tenant of "+path, got.Get("X-Tenant"), "1")
		}
	}
}

// Rails and Laravel run another method than that of the request line.
func TestMethodInAFieldIsRefusedUnlessTheRouteAllowsIt(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	})
	r := start(t, upstream.URL, "routes: [{match: POST /payments}, {match: POST /rails, method_field: true, keys: rails}, {match: /, guard: false}]")
	const form, parts = "Content-Type: application/x-www-form-urlencoded", "Content-Type: multipart/form-data; boundary=b"
	part := func(name string) string {
		return "--b\r\nContent-Disposition: form-data; " + name + "\r\n\r\ndelete\r\n--b--\r\n"
	}
	for i, row := range []struct {
		path, body, header string
		names              bool
	}{
		{"/payments?_method=delete", "x", "X: y", true},
		{"/payments?a=1&%5Fmethod=delete", "x", "X: y", true},
		{"/payments", "_method=delete&a=1", form, true},
		{"/payments", "a=1&_method=delete", form + "; charset=utf-8", true},
		{"/payments", part(`name="_method"`), parts, true},
		{"/payments", part("name=_method"), parts, true},
		{"/open", "_method=delete", form, true},
		{"/open?_method=delete", "x", "X: y", true},
		// as Rack reads it
		{"/payments", "_method=delete", "X: y", true},
		{"/payments", "_method=delete", form + ",x", true},
		{"/payments", "a=1&  _method=delete", form, true},
		{"/payments", "_method=delete", "Content-Type: text/plain\r\n" + form, true},
		{"/payments", part(`name="_method"`), "Content-Type: multipart/mixed; boundary=b", true},
		{"/payments", part(`name="_met\hod"`), parts, true},
		{"/payments", "--b\r\nContent-ID: _method\r\n\r\ndelete\r\n--b--\r\n", parts, true},
		// as PHP reads it
		{"/payments?.method=delete", "x", "X: y", true},
		{"/payments", "[method=delete", form, true},
		{"/payments", "_method%00x=delete", form, true},
		{"/payments", part(`name=".method"`), parts, true},
		// as Laravel reads it
		{"/payments", `{"_method": "delete"}`, "Content-Type: application/json", true},
		{"/payments", `{"\u005Fmethod": "delete"}`, "Content-Type: application/ld+json; charset=utf-8", true},
		{"/payments", "_method=delete", "Content-Type: text/plain", true},
		{"/payments?my_method=delete", "x", "X: y", false},
		{"/payments", "a=_method", form, false},
		{"/payments", part(`name="a"`), parts, false},
		{"/payments", part(`name="pay.method"`), parts, false},
		{"/payments", "pay[method]=card&pay_method=card", form, false},
		{"/payments", `{"pay_method": "a_method"}`, "Content-Type: application/json", false},
		{"/rails?_method=delete", "_method=delete", form, false},
		{"/open", strings.Repeat("a=1&", 50_000) + "b=2", form, false},
	} {
		a := r.do("POST", row.path, row.body, append(strings.Split(row.header, "\r\n"), fmt.Sprint("Idempotency-Key: ", i))...)
		if row.names {
			r.wantCode(a, api.InvalidRequest)
			expect.Equal(t, row.path+": field", a.problem().Field, "_method")
			continue
		}
		expect.Equal(t, row.path+" with "+row.header+": the body arrives whole", a.status == 201 && a.body == row.body, true)
	}
	upstream.wantPaid(t, 8)
	r.wantStatus(r.do("GET", "/open?_method=delete", ""), 201) // frameworks take it for GET
}

// exchangeRaw sends one request and returns the answer as it came.
func (r *rig) exchangeRaw(t *testing.T, request string) (line string, answer *http.Response, text string) {
	r.t.Helper()
	conn := r.dial()
	defer conn.Close()
	say(conn, request+"\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	text = untilEnd(t, request, conn)
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	expect.MustEqual(r.t, "the error of reading the answer", err, nil)
	line, _, _ = strings.Cut(text, "\r\n")
	return line, answer, text
}

// The text of a status is the service's, on the first answer, on its replays and where nothing is
// guarded.
func TestTextOfAStatusIsKept(t *testing.T) {
	upstream := converse(t, func(_ int64, r *http.Request, conn net.Conn) bool {
		line := map[string]string{"/payments": "201 Paid, thank you", "/open": "418 I'm a kettle", "/usual": "404 Not Found"}[r.URL.Path]
		return say(conn, "HTTP/1.1 "+line+"\r\nCoatcheck-Status-Text: forged\r\nContent-Length: 2\r\n\r\nok")
	})
	s := serve(t, upstream.url, payments, briefIdle)
	for range 2 {
		line, answer, _ := s.exchangeRaw(t, "POST /payments HTTP/1.1\r\nIdempotency-Key: a")
		expect.Equal(t, "line of the answer", line, "HTTP/1.1 201 Paid, thank you")
		expect.Equal(t, "the header that carries it", answer.Header.Values(statusTextHeader), []string(nil))
	}
	for request, want := range map[string]string{"POST /open HTTP/1.0": "HTTP/1.0 418 I'm a kettle", "GET /usual HTTP/1.1": "HTTP/1.1 404 Not Found"} {
		line, _, _ := s.exchangeRaw(t, request)
		expect.Equal(t, request, line, want)
	}
	upstream.wantRead(t, 3)
}

// net/http adds Cache-Control to what has Pragma.
func TestCacheControlIsNotAdded(t *testing.T) {
	for sent, want := range map[string]string{"": "", "Cache-Control: no-cache\r\n": "no-cache", "Cache-Control: max-age=1\r\n": "max-age=1"} {
		var asked http.Header
		upstream := converse(t, func(_ int64, r *http.Request, conn net.Conn) bool {
			asked = r.Header
			return say(conn, "HTTP/1.1 201 Created\r\nPragma: no-cache\r\n"+sent+"Content-Length: 2\r\n\r\nok")
		})
		s := serve(t, upstream.url, payments, briefIdle)
		for _, request := range []string{"POST /payments HTTP/1.1\r\nIdempotency-Key: a", "POST /payments HTTP/1.1\r\nIdempotency-Key: a", "POST /open HTTP/1.1"} {
			_, _, text := s.exchangeRaw(t, request+"\r\nPragma: no-cache\r\n"+strings.TrimSuffix("X: y\r\n"+sent, "\r\n"))
			expect.Equal(t, request+" with "+sent+": Cache-Control of the answer", strings.Contains(text, "\r\nCache-Control: "+want+"\r\n"), want != "")
			expect.Equal(t, request+" with "+sent+": it is one", strings.Count(text, "Cache-Control:"), len(strings.Fields(want)))
		}
		if sent == "" { // the upstream of this test reads a request as net/http does
			expect.Equal(t, "Pragma of the request", asked.Get("Pragma"), "no-cache")
		}
	}
}

// A client whose connection breaks has to see that an answer is not whole.
func TestAnswersOfAnyLengthSayHowLongTheyAre(t *testing.T) {
	for _, size := range []int{1, 3000, 100_000} {
		body := strings.Repeat("b", size)
		upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_ = http.NewResponseController(w).Flush() // so that it comes in chunks
			_, _ = io.WriteString(w, body)
		})
		r := start(t, upstream.URL, payments)
		for i := range 2 {
			a := r.pay("a")
			expect.Equal(t, fmt.Sprint("the body of ", size, " bytes comes back"), a.body == body, true)
			r.wantReplayed(a, i > 0)
			if i > 0 {
				r.wantHeader(a, "Content-Length", fmt.Sprint(size))
			}
		}
	}
}
