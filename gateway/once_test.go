package gateway

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/wire"
)

// asked is what a bare upstream was asked.
type asked struct {
	method, from, length string
	chunked              bool
	key                  []string
}

// dying answers the first request of a connection and closes it on the second, which it has read whole.
func dying(t *testing.T, requests chan<- asked) *dialogue {
	t.Helper()
	return converse(t, func(n int64, r *http.Request, conn net.Conn) bool {
		requests <- asked{r.Method, conn.RemoteAddr().String(), r.Header.Get("Content-Length"), len(r.TransferEncoding) > 0, r.Header["Idempotency-Key"]}
		if n != 2 {
			return say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		return false
	})
}

// net/http sends a request again by itself if a kept connection turns out to be dead and the request looks repeatable. A guarded one must never be.
func TestGuardedRequestIsNotSentAgainOnAnotherConnection(t *testing.T) {
	for _, row := range []struct{ method, body string }{
		{"POST", "x"},
		{"POST", ""},
		{"PUT", "x"},
		{"PUT", ""},
		{"PATCH", ""},
		{"DELETE", ""},
		{"DELETE", "x"},
		{"GET", ""},
		{"GET", "x"},
		{"OPTIONS", ""},
		{"TRACE", ""},
		{"PROPFIND", ""},
		{"HEAD", ""},
	} {
		t.Run(row.method+" "+row.body, func(t *testing.T) {
			requests := make(chan asked, 5)
			upstream := dying(t, requests)
			r := start(t, upstream.url, "routes: [{match: /x}]", func(c *Config) { c.UpstreamIdle = time.Minute })
			if a := r.do(row.method, "/x", row.body, "Idempotency-Key: one", "X-Idempotency-Key: one"); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			a := r.do(row.method, "/x", row.body, "Idempotency-Key: two", "X-Idempotency-Key: two")
			if row.method != "HEAD" {
				r.wantCode(a, wire.OutcomeUnknown)
			} else if a.status != 503 {
				t.Errorf("%d", a.status)
			}
			if a := r.do(row.method, "/x", row.body, "Idempotency-Key: two", "X-Idempotency-Key: two"); a.status != 409 {
				t.Errorf("a repeat: %d %s", a.status, a.body)
			}
			if n := upstream.read.Load(); n != 2 {
				t.Fatalf("the upstream was asked %d times", n)
			}
			first, second := <-requests, <-requests
			if first.from != second.from {
				t.Error("the connection was not used again: this test says nothing")
			}
			for _, got := range []asked{first, second} {
				lengthless := row.body == "" && row.method != "POST" && row.method != "PUT" && row.method != "PATCH"
				if got.method != row.method || got.chunked || lengthless != (got.length == "") || len(got.key) != 1 {
					t.Errorf("on the wire: %+v", got)
				}
			}
		})
	}
}

func TestOtherRequestsAreSentAgainAsNetHTTPDoes(t *testing.T) {
	requests := make(chan asked, 5)
	upstream := dying(t, requests)
	r := start(t, upstream.url, payments)
	for range 2 {
		if a := r.do("GET", "/x", ""); a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if n := upstream.read.Load(); n != 3 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

func TestHTTPSUpstreamIsAskedOnceAndOverHTTP1ForGuardedRequests(t *testing.T) {
	var guarded atomic.Int64
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/open" {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		if guarded.Add(1) == 1 {
			_, _ = io.WriteString(w, r.Proto)
			return
		}
		panic(http.ErrAbortHandler) // closes the connection
	}))
	upstream.EnableHTTP2 = true
	upstream.StartTLS()
	defer upstream.Close()
	r := start(t, upstream.URL, "routes: [{match: /guarded}]", func(c *Config) {
		c.TLS = upstream.Client().Transport.(*http.Transport).TLSClientConfig
	})
	if a := r.do("GET", "/open", ""); a.body != "HTTP/2.0" {
		t.Errorf("not guarded: %s", a.body)
	}
	if a := r.do("POST", "/guarded", "", "Idempotency-Key: a"); a.body != "HTTP/1.1" {
		t.Errorf("guarded: %s", a.body)
	}
	for _, method := range []string{"POST", "GET", "DELETE"} {
		before := guarded.Load()
		r.wantCode(r.do(method, "/guarded", "", "Idempotency-Key: "+method), wire.OutcomeUnknown)
		if n := guarded.Load() - before; n != 1 {
			t.Errorf("%s was sent %d times", method, n)
		}
	}
}

func TestUntrustedUpstreamIsNeverAsked(t *testing.T) {
	var asked atomic.Int64
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	upstream.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	upstream.StartTLS()
	defer upstream.Close()
	r := start(t, upstream.URL, payments, func(c *Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS12} })
	for range 2 { // the claim is given back
		r.wantCode(r.pay("a"), wire.UpstreamUnavailable)
	}
	if asked.Load() != 0 {
		t.Error("it was asked")
	}
}

// A connection that takes no byte: net/http fails before anything is written, and the claim is given back.
func TestConnectionThatTakesNoByteGivesTheClaimBack(t *testing.T) {
	upstream := newShop(t, nil)
	r := start(t, upstream.URL, payments)
	transport := r.g.transports[1]
	dial := transport.DialContext
	var broken atomic.Bool
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil || !broken.Load() {
			return conn, err
		}
		return conn, conn.(*countedConn).Conn.(*net.TCPConn).CloseWrite()
	}
	broken.Store(true)
	r.wantCode(r.pay("a"), wire.UpstreamUnavailable)
	r.wantCode(r.do("POST", "/payments", strings.Repeat("x", 100_000), "Idempotency-Key: b"), wire.UpstreamUnavailable)
	broken.Store(false)
	r.wantPaid(r.pay("a"), "paid 1", false)
	upstream.wantPaid(t, 1)
}
