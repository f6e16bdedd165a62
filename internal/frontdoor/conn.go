package frontdoor

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// conn is a connection that reads for a moment after a refusal. If it closed at once, the client's
// machine would see a reset, and drop the unread answer.
type conn struct {
	net.Conn

	load  *load
	outer net.Conn // what the door knows it by: itself, or TLS on it

	// bytes of the header that is coming; -1 = what comes is none; by HTTP/2, bytes that have
	// reached no handler
	header atomic.Int64
	hello  atomic.Int64 // bytes that had come when something was first written: a TLS ClientHello
	heard  atomic.Bool  // something has come since the last answer
	many   atomic.Bool  // it has many requests at once, as HTTP/2 has
	taken  atomic.Bool  // a handler has taken it over
	known  atomic.Bool  // it has served a caller who may ask
	// the line of the next answer; nil = net/http's own
	status atomic.Pointer[statusLine]
	// how long Close may wait for what still comes, in Unix nanoseconds; 0 = not at all
	until atomic.Int64
}

// Read counts the bytes read. It ends the connection if there is no memory for a header.
func (c *conn) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n == 0 || c.header.Load() < 0 {
		return n, err
	}
	c.heard.Store(true)
	if !c.holds(int64(n)) {
		return 0, os.ErrDeadlineExceeded // to which net/http answers nothing
	}
	return n, err
}

// holds reports whether there is memory for n more bytes of a header. HTTP/1 keeps a header as it
// came, and has buffers for a small one in any case. By HTTP/2 one byte can name a whole field.
func (c *conn) holds(n int64) bool {
	size := c.header.Add(n)
	if c.many.Load() {
		more := c.load.door.fieldsIn(size) - c.load.door.fieldsIn(size-n)
		return more == 0 || c.load.take(more) == nil
	}
	return size <= freeHeader || c.load.take(copies*n) == nil
}

// fieldsIn is the memory that the fields in some bytes of HTTP/2 take at most.
func (d *Door) fieldsIn(size int64) int64 {
	if size <= freeFields {
		return 0
	}
	return min(size*fieldMemory, copies*int64(d.config.MaxHeader))
}

// Write notes how many of the bytes read were a TLS ClientHello.
func (c *conn) Write(written []byte) (int, error) {
	if c.hello.Load() == 0 {
		c.hello.Store(max(c.header.Load(), 0))
	}
	if said := c.status.Load(); said != nil {
		return c.writeSaying(said, written)
	}
	return c.Conn.Write(written)
}

// statusLine is the line of an answer by HTTP/1 whose text is not the usual one.
type statusLine struct {
	code string // with a space on both sides
	text string
}

// SayStatus has the text beside the status of a request's answer be another one than the usual. It
// has no effect by HTTP/2, which has no such text, and below TLS.
func SayStatus(r *http.Request, status int, text string) {
	if c, _ := r.Context().Value(connKey{}).(*conn); c != nil && r.ProtoMajor == 1 && r.TLS == nil {
		c.status.Store(&statusLine{" " + strconv.Itoa(status) + " ", text})
	}
}

// writeSaying writes the beginning of an answer, which net/http writes with its line, with another
// text. What does not begin with that line is written as it is.
func (c *conn) writeSaying(said *statusLine, written []byte) (int, error) {
	const version = len("HTTP/1.1")
	line, rest, _ := bytes.Cut(written, []byte("\r\n"))
	if len(line) < version+len(said.code) || string(line[version:version+len(said.code)]) != said.code {
		return c.Conn.Write(written)
	}
	c.status.Store(nil)
	head := fmt.Appendf(nil, "%s%s%s\r\n", line[:version], said.code, said.text)
	if _, err := c.Conn.Write(append(head, rest...)); err != nil {
		return 0, err
	}
	return len(written), nil
}

// beginHTTP2 notes that the connection speaks HTTP/2. The end of the TLS handshake counts as part
// of its first header, since they can have come in one piece.
func (c *conn) beginHTTP2() {
	if !c.many.Swap(true) {
		size := c.header.Add(-c.hello.Load())
		c.load.release()
		c.load.add(c.load.door.fieldsIn(size))
	}
}

// busy notes that a header has come whole. The requests of a connection of HTTP/2 are counted each
// by itself.
func (c *conn) busy(major int) {
	if c == nil {
		return
	}
	if major > 1 {
		c.many.Store(true)
		c.reached()
	} else {
		c.header.Store(-1)
	}
	if door := c.load.door; door.draining.Load() {
		door.tell() // Stop waits for that
	}
}

// reached notes that the bytes read by HTTP/2 have reached a handler.
func (c *conn) reached() {
	if c != nil && c.many.Load() && c.header.Swap(0) > freeFields {
		c.load.release()
	}
}

// isComing reports whether the header of a request has not come whole, or has not reached its
// handler.
func (c *conn) isComing() bool { return c != nil && c.header.Load() >= 0 }

// wasTaken reports whether a handler has taken the connection over; nil is a foreign connection.
func (c *conn) wasTaken() bool { return c != nil && c.taken.Load() }

// rest notes that the connection waits for its next request.
func (c *conn) rest() {
	if c.header.Load() < 0 && !c.many.Load() {
		c.heard.Store(false)
		c.header.Store(0)
		c.load.release()
	}
}

// linger makes Close wait for the client's last bytes, until a time.
func (c *conn) linger(until time.Time) { c.until.Store(until.UnixNano()) }

// Close closes the connection. Called a second time it does not wait for the first.
func (c *conn) Close() error {
	if until := c.until.Swap(0); until != 0 {
		c.load.door.parts(c.outer)
		if err := c.CloseWrite(); err == nil && c.SetReadDeadline(time.Unix(0, until)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerSize) // it ends as it likes
		}
	}
	return c.Conn.Close()
}

// CloseWrite tells the client that nothing follows.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Plain prepares the listener below a TLS listener: [Door.Around] has to change connections below
// TLS.
func Plain(l net.Listener) net.Listener { return plain{l} }

type plain struct{ net.Listener }

func (p plain) Accept() (net.Conn, error) {
	accepted, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: accepted, load: &load{}}, nil
}

// wrapped is a connection as net/http gets it.
func (d *Door) wrapped(accepted net.Conn) net.Conn {
	c := plainly(accepted)
	if c == nil {
		if _, ok := accepted.(*tls.Conn); ok {
			return accepted
		}
		c = &conn{Conn: accepted, load: &load{}}
		accepted = c
	}
	c.load.door, c.outer = d, accepted
	return accepted
}

// plainly returns the connection below TLS, if any; nil if no listener of this package accepted it.
func plainly(accepted net.Conn) *conn {
	if secured, ok := accepted.(*tls.Conn); ok {
		accepted = secured.NetConn()
	}
	c, _ := accepted.(*conn)
	return c
}

type connKey struct{}

// withConn notes the connection of requests, as [http.Server.ConnContext].
func withConn(ctx context.Context, accepted net.Conn) context.Context {
	if c := plainly(accepted); c != nil {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}
