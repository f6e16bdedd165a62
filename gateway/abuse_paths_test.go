package gateway

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

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
	r := start(t, upstream.URL, `routes: [{match: POST /payments}, {match: POST /json, canonical_json: true, keys: json}, {match: /, guard: false}]`)
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
