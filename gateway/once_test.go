package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// asked is what a bare upstream was asked.
type asked struct {
	method, from, length string
	chunked              bool
	key                  []string
}

// dying answers the first request of a connection and closes it on the second, which it has read
// whole.
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

// net/http sends a request again by itself if a kept connection turns out to be dead and the
// request looks repeatable. A guarded one must never be.
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
			r := start(t, upstream.url, "routes: [{match: /x}, {match: /, guard: false}]", func(c *Config) { c.UpstreamIdle = time.Hour })
			r.wantStatus(r.do(row.method, "/x", row.body, "Idempotency-Key: one", "X-Idempotency-Key: one"), 200)
			a := r.do(row.method, "/x", row.body, "Idempotency-Key: two", "X-Idempotency-Key: two")
			if row.method != "HEAD" {
				r.wantCode(a, api.OutcomeUnknown)
			} else {
				r.wantStatus(a, 503)
			}
			r.wantStatus(r.do(row.method, "/x", row.body, "Idempotency-Key: two", "X-Idempotency-Key: two"), 409)
			expect.MustEqual(t, "requests that the upstream has read", upstream.read.Load(), 2)
			first, second := <-requests, <-requests
			expect.Equal(t, "the second request came over the first one's connection (else this test says nothing)", second.from, first.from)
			for i, got := range []asked{first, second} {
				length := strconv.Itoa(len(row.body))
				if row.body == "" && row.method != "POST" && row.method != "PUT" && row.method != "PATCH" {
					length = ""
				}
				want := asked{method: row.method, from: got.from, length: length, key: []string{[]string{"one", "two"}[i]}}
				expect.Equal(t, "request on the wire", got, want)
			}
		})
	}
}

// net/http can lose an answer without a body to the end of a short idle time, and a service may
// close each connection after its answer without having said so, as uWSGI's http-socket does. So a
// short time keeps no connection, and the service is told.
func TestShortIdleTimeKeepsNoConnectionAndLosesNoAnswer(t *testing.T) {
	for name, keeps := range map[string]bool{"the service keeps connections": true, "it closes them": false} {
		t.Run(name, func(t *testing.T) {
			const keys = 100
			var told atomic.Int64
			upstream := converse(t, func(_ int64, request *http.Request, conn net.Conn) bool {
				if request.Close {
					told.Add(1)
				}
				_, err := io.WriteString(conn, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
				return keeps && err == nil
			})
			r := start(t, upstream.url, payments, quiet, func(c *Config) { c.UpstreamIdle = time.Millisecond })
			for n := range keys {
				r.wantStatus(r.pay(fmt.Sprint("key-", n)), http.StatusCreated)
			}
			expect.Equal(t, "requests that say that their connection is not kept", told.Load(), keys)
		})
	}
}

// Who sends a key believes that it is guarded, and net/http believes the key: it would send the
// request again. One that is not safe never is, on a route or not.
func TestUnguardedRequestThatIsNotSafeIsNotSentAgain(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "PROPFIND", "CHARGE"} {
		for _, body := range []string{"", "x"} {
			for _, header := range []string{"Idempotency-Key", "X-Idempotency-Key", "x-idempotency-key"} {
				t.Run(method+" "+body+" "+header, func(t *testing.T) {
					requests := make(chan asked, 5)
					upstream := dying(t, requests)
					r := start(t, upstream.url, payments)
					r.wantStatus(r.do(method, "/x", body, header+": one"), 200)
					r.wantCode(r.do(method, "/x", body, header+": two"), api.OutcomeUnknown)
					upstream.wantRead(t, 2)
					first, second := <-requests, <-requests
					expect.Equal(t, "the second request came over the first one's connection (else this test says nothing)", second.from, first.from)
				})
			}
		}
	}
}

func TestOtherRequestsAreSentAgainAsNetHTTPDoes(t *testing.T) {
	requests := make(chan asked, 5)
	upstream := dying(t, requests)
	r := start(t, upstream.url, payments)
	for range 2 {
		r.wantStatus(r.do("GET", "/x", ""), 200)
	}
	upstream.wantRead(t, 3)
}

func TestUntrustedUpstreamIsNeverAsked(t *testing.T) {
	var asked atomic.Int64
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	upstream.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	upstream.StartTLS()
	defer upstream.Close()
	r := start(t, upstream.URL, payments, func(c *Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS12} })
	for range 2 { // the claim is given back
		r.wantCode(r.pay("a"), api.UpstreamUnavailable)
	}
	expect.Equal(t, "requests to an upstream that is not trusted", asked.Load(), 0)
}

// A connection that takes no byte: net/http fails before anything is written, and the claim is
// given back.
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
	r.wantCode(r.pay("a"), api.UpstreamUnavailable)
	r.wantCode(r.do("POST", "/payments", strings.Repeat("x", 100_000), "Idempotency-Key: b"), api.UpstreamUnavailable)
	broken.Store(false)
	r.wantPaid(r.pay("a"), "paid 1", false)
	upstream.wantPaid(t, 1)
}
