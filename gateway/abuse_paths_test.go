package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/wire"
)

// However a client writes a guarded request, one that a generous server would take for it does not pass the guard.
func TestDisguisedRequestsDoNotPassTheGuard(t *testing.T) {
	upstream := newScribe(t)
	r := serve(t, upstream.url, `routes: [{match: POST /payments}, {match: "POST /a/{id}/b"}, {match: /admin/}]`, impatient)
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
			t.Errorf("%s: %v", line, statuses)
		}
	}
	for _, line := range []string{"POST \\payments", "POST payments", "POST /pay ments", "POST /payments\x00", "POST /payments%", "POST /payments%zz", "PO ST /payments", "POST\t/payments"} {
		if statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); len(statuses) != 1 || statuses[0] != 400 {
			t.Errorf("%q: %v", line, statuses)
		}
	}
	if heads, _ := upstream.take(); len(heads) > 0 {
		t.Errorf("the upstream was asked: %q", heads)
	}
	for _, line := range []string{"GET /payments", "POST /payments%20", "POST /paymentsx", "POST /payment;s", "POST /x;/payments", "POST /a/1/c", "GET /;admin/x", "GET /a\\b"} {
		if statuses := r.raw(line + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); len(statuses) != 1 || statuses[0] != 200 {
			t.Errorf("%s: %v", line, statuses)
		}
	}
	if log := r.log.String(); strings.Contains(log, "elsewhere") || strings.Contains(log, "..") {
		t.Errorf("the log holds a path:\n%s", log)
	}
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// A client that takes no compressed answer gets none: nobody asks for one on the way, to unpack it.
func TestNobodyAsksForCompressionOnTheWay(t *testing.T) {
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header.Values("Accept-Encoding"), ",")+"|")
	})
	s := serve(t, upstream.URL, payments)
	for _, path := range []string{"/payments", "/open"} {
		conn := s.dial()
		say(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if text := untilEnd(t, path, conn); !strings.HasPrefix(text, "HTTP/1.1 200 ") || !strings.HasSuffix(text, "\n|") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// A compressed body is bytes to the gateway: compared and passed on as it came, and never inflated.
func TestCompressedBodiesPassAsTheyCame(t *testing.T) {
	var bomb bytes.Buffer
	packed := gzip.NewWriter(&bomb)
	_, _ = packed.Write(bytes.Repeat([]byte(" "), 16<<20))
	if err := packed.Close(); err != nil || bomb.Len() > 1<<20 {
		t.Fatal(bomb.Len(), err)
	}
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Equal(body, bomb.Bytes()) || r.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%d bytes, %v", len(body), r.Header)
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
	r := start(t, upstream.URL, `routes: [{match: POST /payments}, {match: POST /json, canonical_json: true}]`)
	for _, path := range []string{"/payments", "/json", "/open"} {
		for i := range 2 {
			a := r.do("POST", path, bomb.String(), "Idempotency-Key: a", "Content-Encoding: gzip", "Content-Type: application/json", "Accept-Encoding: gzip")
			if a.status != 201 || a.body != bomb.String() || a.header.Get("Content-Encoding") != "gzip" || (a.header.Get("Idempotent-Replayed") == "true") != (i == 1 && path != "/open") {
				t.Errorf("%s: %d %d %v", path, a.status, len(a.body), a.header)
			}
		}
	}
	upstream.wantPaid(t, 4)
	r.wantCode(r.do("POST", "/payments", "{}", "Idempotency-Key: a"), wire.PayloadMismatch)
}
