package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// large is a body that no socket's buffers take whole, and a routes file that lets it in.
var large = strings.Repeat("x", 8<<20)

const largePayments = `routes: [{match: POST /payments, lease_ms: 3600000, upstream_timeout_ms: 100000, max_body_bytes: 16777216}, {match: /, guard: false}]`

// hasty starts an upstream that answers as soon as it has read a request's header, and closes the
// connection with the body unread, as gunicorn's sync workers, uwsgi and node do. The system resets
// such a connection.
func hasty(t testing.TB, answer string) (url string) {
	t.Helper()
	return hear(t, func(conn net.Conn) {
		defer conn.Close()
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.WriteString(conn, answer)
		}
	})
}

// An answer that the service has sent is the answer, also where the rest of the request could not
// be written any more: it is not the unknown outcome that only an operator can end.
func TestAnswerBeforeTheBodyWasReadIsTheAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		status int
		body   string
	}{
		"401":            {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\nConnection: close\r\n\r\nwho", 401, "who"},
		"413":            {"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig", 413, "big"},
		"without a body": {"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n", 413, ""},
		"in chunks":      {"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n0\r\n\r\n", 400, "bad"},
		// what of an answer is not on its way when the service resets the connection is lost there
		"of many pieces":      {"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("y", 20_000), 422, strings.Repeat("y", 20_000)},
		"of a good operation": {"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\npaid", 201, "paid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, hasty(t, row.answer), largePayments)
			for n := range 4 {
				for _, path := range []string{"/payments", "/free"} { // guarded, and not
					what := fmt.Sprintf("answer %d to POST %s", n, path)
					status, body := r.direct(path, strconv.Itoa(n))
					expect.Equal(t, what+": status", status, row.status)
					if body != row.body {
						t.Errorf("%s: got %d bytes, %.300q, want %d", what, len(body), body, len(row.body))
					}
				}
			}
			expect.Equal(t, "lines of the log on answers that did not come", strings.Count(r.log.String(), "no whole answer"), 0)
		})
	}
}

// direct sends a large body to the gateway without a connection: a client that is still writing one
// has a race of its own.
func (r *rig) direct(path, key string) (status int, body string) {
	request := httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, path, strings.NewReader(large))
	request.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	r.g.ServeHTTP(w, request)
	return w.Code, w.Body.String()
}

// lateConn gives what has come only after a write has failed, and so shows every time what else
// depends on which of the two net/http sees first.
type lateConn struct {
	net.Conn
	failed chan struct{}
	once   sync.Once
}

func (c *lateConn) Write(bytes []byte) (int, error) {
	n, err := c.Conn.Write(bytes)
	if err != nil {
		c.once.Do(func() { close(c.failed) })
	}
	return n, err
}

func (c *lateConn) Read(into []byte) (int, error) {
	<-c.failed
	return c.Conn.Read(into)
}

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.failed) })
	return c.Conn.Close()
}

// late has the connections of guarded requests be such.
func (r *rig) late() {
	for _, transport := range r.g.transports {
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if found := counted(conn); err == nil && found != nil {
				found.Conn = &lateConn{Conn: found.Conn, failed: make(chan struct{})}
			}
			return conn, err
		}
	}
}

func TestAnswerIsReadAfterAWriteHasFailed(t *testing.T) {
	for _, path := range []string{"/payments", "/free"} {
		r := start(t, hasty(t, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\nwho"), largePayments)
		r.late()
		for range 3 { // a 401 frees the key
			status, body := r.direct(path, "k")
			expect.Equal(t, "POST "+path, fmt.Sprint(status, " ", body), "401 who")
		}
	}
}

// What broke off without an answer stays in doubt, at once.
func TestWriteThatFailsWithoutAnAnswerIsInDoubt(t *testing.T) {
	for name, answer := range map[string]string{"no answer": "", "half of one": "HTTP/1.1 401 Unauth", "half a body": "HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\nw"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, hasty(t, answer), largePayments)
			r.late()
			r.wantCode(r.do("POST", "/payments", large, "Idempotency-Key: k"), api.OutcomeUnknown)
			r.wantCode(r.do("POST", "/payments", large, "Idempotency-Key: k"), api.IdempotencyUnknown)
		})
	}
}

func TestAnswerIsReadAfterAWriteHasFailedOverTLS(t *testing.T) {
	known := httptest.NewTLSServer(http.NotFoundHandler())
	defer known.Close()
	url := hear(t, func(conn net.Conn) {
		defer conn.Close()
		secured := tls.Server(conn, &tls.Config{Certificates: known.TLS.Certificates, MinVersion: tls.VersionTLS12})
		if _, err := http.ReadRequest(bufio.NewReader(secured)); err == nil {
			_, _ = io.WriteString(secured, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\n\r\nwho")
		}
	})
	r := start(t, strings.Replace(url, "http://", "https://", 1), largePayments, func(c *Config) {
		c.TLS = known.Client().Transport.(*http.Transport).TLSClientConfig
	})
	for range 10 {
		status, body := r.direct("/payments", "k")
		expect.Equal(t, "POST /payments", fmt.Sprint(status, " ", body), "401 who")
	}
}

// full is a connection that takes no more after its first bytes.
type full struct{ net.Conn }

func (f full) Write([]byte) (int, error) { return 1, syscall.EPIPE }

// A service that takes no more and says nothing ends the wait within a bound, which each piece of
// an answer begins anew.
func TestSilenceAfterAFailedWriteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		conn, began := countConn(full{near}), time.Now()
		(&contact{}).got(httptrace.GotConnInfo{Conn: conn})
		wrote := make(chan error, 1)
		go func() {
			_, err := conn.Write([]byte("a request"))
			wrote <- err
		}()
		synctest.Wait()
		go func() {
			time.Sleep(lastWord - time.Second)
			_, _ = far.Write([]byte("HTTP/1.1"))
		}()
		_, err := io.ReadAll(conn)
		expect.Error(t, "reading", err, os.ErrDeadlineExceeded)
		expect.Equal(t, "how long it waited", time.Since(began), 2*lastWord-time.Second)
		expect.Equal(t, "writes that have ended before the connection is closed", len(wrote), 0)
		conn.Close()
		expect.Error(t, "writing", <-wrote, syscall.EPIPE)
	})
}
