package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// However a client writes a guarded request, one that a generous server would take for it does not
// pass the guard.
func TestDisguisedRequestsDoNotPassTheGuard(t *testing.T) {
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /payments}, {match: "POST /a/{id}/b"}, {match: /admin/}]`, briefIdle)
	for _, line := range []string{
		"POST /payments", "POST //payments", "POST ///payments", "POST /./payments", "POST /x/../payments", "POST /x/%2e%2e/payments", "POST /%2e/payments", "POST /%70ayments", "POST /%2fpayments", "POST /x//..%2f..//payments",
		"POST /payments;x=1", "POST /payments;", "POST /;x/payments", "POST /x/..;/payments", "POST /x;a=b/..;c/payments", "POST /payments%3bx", "POST \\payments", "POST /\\payments", "POST /x\\..\\payments", "POST /%5cpayments", "POST /x/..%5cpayments",
		"POST /payments?a=b", "POST /payments?", "POST http://elsewhere/payments", "POST http://elsewhere//payments;x", "post /payments", "Post /payments",
		"POST /a/1/b", "POST /a/1/x/../b", "POST /a%2f1%2fb", "POST /a/1;x/b;y", "GET /admin/x", "GET /admin%2fx", "GET //admin;/x", "DELETE /x/..;/admin/x",
	} {
		if line[5] == '\\' {
			continue // is no request for net/http, which refuses it below
		}
		statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if len(statuses) != 1 || statuses[0] != 400 && statuses[0] != 307 && statuses[0] != 301 {
			t.Errorf("%s: got statuses %v, want [400], [307] or [301]", line, statuses)
		}
	}
	for _, line := range []string{"POST \\payments", "POST payments", "POST /pay ments", "POST /payments\x00", "POST /payments%", "POST /payments%zz", "PO ST /payments", "POST\t/payments"} {
		statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		expect.Equal(t, strconv.Quote(line), statuses, []int{400})
	}
	if heads, _ := upstream.take(); len(heads) > 0 {
		t.Errorf("what the upstream was asked: got %q, want nothing", heads)
	}
	for _, line := range []string{"GET /payments", "POST /payments%20", "POST /paymentsx", "POST /payment;s", "POST /x;/payments", "POST /a/1/c", "GET /;admin/x", "GET /a\\b"} {
		statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		expect.Equal(t, line+", which no route guards", statuses, []int{200})
	}
	if log := r.log.String(); strings.Contains(log, "elsewhere") || strings.Contains(log, "..") {
		t.Errorf("the log holds a path:\n%s", log)
	}
	r.wantEnd()
}

// A client that takes no compressed answer gets none: none is asked for on the way, to unpack it.
func TestNobodyAsksForCompressionOnTheWay(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header.Values("Accept-Encoding"), ",")+"|")
	})
	s := serve(t, upstream.URL, payments)
	for _, path := range []string{"/payments", "/open"} {
		conn := s.dial()
		say(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if text := untilEnd(t, path, conn); !strings.HasPrefix(text, "HTTP/1.1 200 ") || !strings.HasSuffix(text, "\n|") {
			t.Errorf("POST %s: got %q, want 200 and no Accept-Encoding", path, text)
		}
	}
}

// A compressed body is bytes to the gateway: compared and passed on as it came, and never inflated.
func TestCompressedBodiesPassAsTheyCame(t *testing.T) {
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, _ = packed.Write(bytes.Repeat([]byte(" "), 16<<20))
	if err := packed.Close(); err != nil || bomb.Len() > 1<<20 {
		t.Fatalf("packing 16 MiB of spaces: got %d bytes and error %v, want less than 1 MiB", bomb.Len(), err)
	}
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		expect.Equal(t, r.URL.Path+": the body arrives as it was sent", bytes.Equal(body, bomb.Bytes()), true)
		expect.Equal(t, r.URL.Path+": Content-Encoding", r.Header.Get("Content-Encoding"), "gzip")
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	r := start(t, upstream.URL, `routes: [{match: POST /payments}, {match: POST /json, canonical_json: true}]`)
	for _, path := range []string{"/payments", "/json", "/open"} {
		for i := range 2 {
			a := r.do("POST", path, bomb.String(), "Idempotency-Key: a", "Content-Encoding: gzip", "Content-Type: application/json", "Accept-Encoding: gzip")
			expect.Equal(t, a.asked, a.status, 201)
			expect.Equal(t, a.asked+": the body comes back as it was sent", a.body == bomb.String(), true)
			r.wantHeader(a, "Content-Encoding", "gzip")
			r.wantReplayed(a, i == 1 && path != "/open")
		}
	}
	upstream.wantPaid(t, 4)
	r.wantCode(r.do("POST", "/payments", "{}", "Idempotency-Key: a"), api.PayloadMismatch)
}
