package gateway

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// impatient has a gateway soon give up what does not come. A header is what these tests do send,
// and it may take its time.
func impatient(c *Config) {
	c.BodyTimeout, c.StallTimeout, c.HeaderTimeout, c.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond, 3*time.Second, 50*time.Millisecond
}

// briefIdle has a gateway soon end a connection on which nothing is asked. What was asked is
// answered, however long a busy machine takes for it.
func briefIdle(c *Config) { c.IdleTimeout = 50 * time.Millisecond }

func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	expect.MustEqual(r.t, "the error of dialing", err, nil)
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// untilEnd reads what comes until the gateway ends the connection.
func untilEnd(t *testing.T, what string, conn net.Conn) string {
	t.Helper()
	text, err := io.ReadAll(conn)
	if late, ok := err.(net.Error); ok && late.Timeout() { //nolint:errorlint // a connection's own error is not wrapped
		t.Errorf("%s: got %.200q, and no end of the connection within %v", what, text, patience)
	}
	return string(text)
}

// A body that is said to come and does not holds neither an answer that does not need it nor the
// connection.
func TestBodyThatDoesNotComeHoldsNothing(t *testing.T) {
	t.Parallel() // it waits
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, `routes: [{match: /payments}, {match: /, guard: false}]`, impatient)
	var waiting sync.WaitGroup
	for what, row := range map[string]struct{ head, want string }{
		"no key":         {"POST /payments HTTP/1.1\r\n", "HTTP/1.1 400 "},
		"a guarded body": {"POST /payments HTTP/1.1\r\nIdempotency-Key: a\r\n", "HTTP/1.1 400 "},
		"an own page":    {"GET /idempotency-policy HTTP/1.1\r\n", "HTTP/1.1 200 "},
		"a longer page":  {"GET /problems/outcome-unknown HTTP/1.1\r\n", "HTTP/1.1 200 "},
		"an upgrade":     {"POST /payments HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: x\r\nIdempotency-Key: a\r\n", "HTTP/1.1 400 "},
		"CONNECT":        {"CONNECT h:1 HTTP/1.1\r\n", "HTTP/1.1 405 "},
	} {
		for _, framing := range []string{"Content-Length: 5\r\n\r\n", "Content-Length: 200000\r\n\r\n1234", "Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\n1"} {
			conn := s.dial()
			say(conn, row.head+"Host: x\r\n"+framing)
			waiting.Go(func() {
				if text := untilEnd(t, what, conn); !strings.HasPrefix(text, row.want) {
					t.Errorf("%s, and then %q: got %.200q, want %s", what, framing, text, row.want)
				}
			})
		}
	}
	waiting.Wait()
	upstream.wantPaid(t, 0)
	expect.Eventually(t, "no request is inside", func() bool { return s.g.door.Inside() == 0 })
	s.wantEnd()
}

// The same where the service behind has answered, and did not want the body.
func TestAnswerThatComesBeforeTheBodyIsSent(t *testing.T) {
	upstream := hear(t, func(conn net.Conn) {
		defer conn.Close()
		if request, err := http.ReadRequest(bufio.NewReader(conn)); err == nil && request.Method == http.MethodPost {
			say(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		}
		_, _ = io.Copy(io.Discard, conn)
	})
	s := serve(t, upstream, payments, impatient)
	conn := s.dial()
	say(conn, "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"+strings.Repeat("some", 2000))
	if text := untilEnd(t, "an open route", conn); text != "" && !strings.HasPrefix(text, "HTTP/1.1 403 ") && !strings.HasPrefix(text, "HTTP/1.1 503 ") {
		t.Errorf("POST /open with a body that the upstream does not want: got %.200q, want 403, 503 or nothing", text)
	}
	short := s.dial()
	// so little that the upstream has not heard of it
	say(short, "POST /open HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsome")
	untilEnd(t, "an open route with a short body", short)
	expect.Eventually(t, "no request is inside", func() bool { return s.g.door.Inside() == 0 })
	s.wantEnd()
}

// The bound is for what is left of a body: an answer may take longer than it, be it a stream, once
// the body is there.
func TestStreamBehindABodyOutlivesTheBoundOfTheBody(t *testing.T) {
	begun, proceed := make(chan struct{}), make(chan struct{})
	upstream := newShop(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush()
		close(begun)
		select {
		case <-proceed:
			_, _ = io.WriteString(w, "last")
		case <-r.Context().Done():
		}
	})
	r := start(t, upstream.URL, payments, impatient)
	answered := make(chan answer, 1)
	go func() {
		a, _ := r.send(t.Context(), "POST", "/open", "body")
		answered <- a
	}()
	<-begun
	twice := time.NewTimer(500 * time.Millisecond) // more than twice the bounds of body and stall
	<-twice.C
	close(proceed)
	expect.Equal(t, "POST /open", (<-answered).said(), "200 first last")
}

// A client that takes nothing of its answer is cut off, and what was read for it is let go.
func TestClientThatTakesNothingIsCutOff(t *testing.T) {
	const size = 12 << 20 // more than the buffers of a connection take
	piece := bytes.Repeat([]byte("a"), 1<<20)
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	s := serve(t, upstream.URL, `routes: [{match: POST /kept, max_answer_bytes: 20000000}, {match: POST /streamed, keys: streamed}, {match: /, guard: false}]`, impatient, on(storetest.Open(t, redisstore.Config{URL: "embedded:", Timeout: time.Minute})))
	for _, path := range []string{"/open", "/streamed", "/kept"} {
		conn := s.dial()
		_ = conn.(*net.TCPConn).SetReadBuffer(4096)
		say(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nContent-Length: 0\r\n\r\n")
		if got := readUntil(t, conn, "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("POST %s: got %q, want 200", path, got)
		}
		expect.Eventually(t, path+" is over", func() bool { return s.g.door.Inside() == 0 })
	}
	// What was kept is there for who comes again.
	conn := s.dial()
	say(conn, "POST /kept HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\nContent-Length: 0\r\n\r\n")
	expect.Contains(t, "POST /kept again", readUntil(t, conn, "\r\n\r\n"), "\r\nIdempotent-Replayed: true\r\n")
	conn.Close()
	s.wantEnd()
}

func TestHeadersAndConnectionsOfClientsAreBounded(t *testing.T) {
	t.Parallel() // it waits
	upstream := newShop(t, nil)
	s := serve(t, upstream.URL, payments, impatient, func(c *Config) { c.MaxConnections = 10 })
	slow := s.dial()
	say(slow, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	if text := untilEnd(t, "a header", slow); strings.HasPrefix(text, "HTTP/1.1 2") {
		t.Errorf("a header that does not end: got %q, want no answer of success", text)
	}
	for what, header := range map[string]string{"size": "X: " + strings.Repeat("y", 80<<10) + "\r\n", "number": strings.Repeat("X: y\r\n", 257)} {
		conn := s.dial()
		say(conn, "POST /payments HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\r\n"+header+"\r\n")
		if text := untilEnd(t, what, conn); text != "" && !strings.HasPrefix(text, "HTTP/1.1 431 ") {
			t.Errorf("a header over the limit of %s: got %.200q, want 431 or nothing", what, text)
		}
	}
	for range 50 {
		s.dial() // and nothing else
	}
	s.wantStatus(s.pay("a"), 201)
	if n := s.g.door.Inside(); n > 10 {
		t.Errorf("connections inside: got %d, want 10 at most", n)
	}
	upstream.wantPaid(t, 1)
	s.wantEnd()
}

// An upgraded connection counts until it has ended.
func TestUpgradedConnectionLeavesItsPlace(t *testing.T) {
	upstream := converse(t, func(_ int64, _ *http.Request, conn net.Conn) bool {
		say(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.Copy(conn, conn)
		return false
	})
	s := serve(t, upstream.url, payments, impatient)
	conn := s.dial()
	say(conn, "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	readUntil(t, conn, "\r\n\r\n")
	say(conn, "hello")
	expect.Equal(t, "echo of an upgraded connection", readUntil(t, conn, "hello"), "hello")
	expect.Equal(t, "connections inside", s.g.door.Inside(), 1)
	conn.Close()
	expect.Eventually(t, "it has left", func() bool { return s.g.door.Inside() == 0 })
	s.wantEnd()
}
