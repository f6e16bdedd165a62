package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// countedConn counts the bytes that were handed to the connection. It counts before it writes and
// takes back what was not written, so that a look in the middle sees too many and never too few.
//
// A service may answer before it has read the whole request, and close: then a write fails although
// the answer is there. net/http would close the connection at once, and the answer would be lost.
// So such a write does not end before the connection is closed, by net/http itself once it has read
// the answer or has found that none comes.
type countedConn struct {
	net.Conn
	written atomic.Int64
	before  atomic.Int64 // of that, before the request under way; -1 = there has been none
	again   atomic.Bool  // the request under way is not its first, and has written nothing yet
	gone    atomic.Bool  // the service had closed it before that
	cut     atomic.Bool  // a write has failed
	end     func()       // closes closed
	closed  chan struct{}
}

// lastWord is how long a service may be silent in its answer after a write has failed.
const lastWord = 5 * time.Second

func countConn(conn net.Conn) *countedConn {
	c := &countedConn{Conn: conn, closed: make(chan struct{})}
	c.before.Store(-1)
	c.end = sync.OnceFunc(func() { close(c.closed) })
	return c
}

// errGone is the error of a write of which nothing was handed over.
var errGone = errors.New("the service has closed the connection")

func (c *countedConn) Write(bytes []byte) (int, error) {
	if c.again.CompareAndSwap(true, false) && isGone(c.Conn) {
		c.gone.Store(true)
	}
	if c.gone.Load() { // also for the alert with which TLS closes: it is nothing of the request
		return 0, errGone
	}
	c.written.Add(int64(len(bytes)))
	n, err := c.Conn.Write(bytes)
	c.written.Add(int64(n - len(bytes)))
	if before := c.before.Load(); err != nil && before >= 0 && c.written.Load() > before {
		c.cut.Store(true)
		c.limit()
		<-c.closed
	}
	return n, err
}

// Read bounds the silence of a service that takes no more of a request.
func (c *countedConn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 && c.cut.Load() {
		c.limit()
	}
	return n, err
}

// limit has a read fail if nothing comes. net/http sets no limit of its own on connections.
func (c *countedConn) limit() {
	_ = c.SetReadDeadline(time.Now().Add(lastWord)) // it fails on one that is closed
}

// Close ends a write that has failed as well.
func (c *countedConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// counted finds the counted connection under net/http's; nil if there is none.
func counted(conn net.Conn) *countedConn {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	found, _ := conn.(*countedConn)
	return found
}

// isHTTP2 reports whether a connection carries many requests at once. What comes in there unasked,
// such as the answer to another request, says nothing of its end.
func isHTTP2(conn net.Conn) bool {
	secured, ok := conn.(*tls.Conn)
	return ok && secured.ConnectionState().NegotiatedProtocol == "h2"
}

// contact remembers which connections a request was given, to show whether any byte of it can
// have reached the upstream. It is safe for concurrent use.
type contact struct {
	mu    sync.Mutex
	given []mark
}

// mark is a connection and how much had been written to it before the request.
type mark struct {
	conn   *countedConn
	before int64
	kept   bool // it has carried a request before
}

// got notes that a connection was given to the request, before anything of it is written.
func (w *contact) got(info httptrace.GotConnInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := mark{conn: counted(info.Conn), kept: info.Reused}
	if m.conn != nil {
		m.before = m.conn.written.Load()
		m.conn.before.Store(m.before)
		m.conn.again.Store(info.Reused && !isHTTP2(info.Conn))
	}
	w.given = append(w.given, m)
}

// untouched reports whether provably no byte was written for the request.
func (w *contact) untouched() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.given {
		if m.conn == nil || m.conn.written.Load() != m.before {
			return false
		}
	}
	return true
}

// tries returns how many connections the request was given.
func (w *contact) tries() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.given)
}

// mayGoAnew reports whether the request was given another connection after so many, a kept one that
// took no byte of it.
func (w *contact) mayGoAnew(before int) bool {
	if !w.untouched() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.given) > before && w.given[len(w.given)-1].kept
}

// anew sends a request on another connection if the service had closed the kept one before it took
// a byte. net/http does so too, but not if its reader learns of the end before its writer.
type anew struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t anew) RoundTrip(r *http.Request) (*http.Response, error) {
	contact := &exchangeOf(r.Context()).contact
	for {
		before := contact.tries()
		answer, err := t.RoundTripper.RoundTrip(r)
		if err == nil || r.GetBody == nil || r.Context().Err() != nil || !contact.mayGoAnew(before) {
			return answer, err
		}
		if r.Body == nil {
			continue // another empty body would be sent in chunks
		}
		body, unread := r.GetBody()
		if unread != nil {
			return answer, err
		}
		r = r.WithContext(r.Context()) // a transport must leave a request as it is
		r.Body = body
	}
}
