package frontdoor

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// What may still come of a request that is answered before its body has been read whole: net/http
// would wait for it as long as for a body that is wanted, and hold the answer back until then.
const (
	lingerTime = time.Second
	lingerSize = 1 << 20
	smallRest  = 256 << 10 // the most that is waited for so that the connection can be kept
)

// body is the body of a request, which knows whether it has been read whole. One goroutine may
// read while another answers.
type body struct {
	from    io.ReadCloser
	size    int64 // as the client said; -1 = it did not
	control *http.ResponseController

	reading  sync.Mutex // held while it is read
	mu       sync.Mutex
	read     int64
	whole    bool // read to its end
	broken   bool // it cannot be read to its end
	closed   bool
	streamed bool
	stall    time.Duration // how long nothing may come; 0 = as long as the request may take
}

// Read reads on, until Close.
func (b *body) Read(into []byte) (int, error) {
	if !b.begin() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.readOn(into)
}

// begin reports whether the body may be read, and begins the time of a stall anew.
func (b *body) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.stall > 0 {
		_ = b.control.SetReadDeadline(time.Now().Add(b.stall)) // a connection that takes no deadline has none
	}
	return !b.closed
}

func (b *body) readOn(into []byte) (int, error) {
	b.reading.Lock()
	n, err := b.from.Read(into)
	b.reading.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += int64(n)
	b.whole = b.whole || errors.Is(err, io.EOF)
	b.broken = b.broken || err != nil && !b.whole
	if b.whole && b.stall > 0 {
		_ = b.control.SetReadDeadline(time.Time{}) // from now on net/http watches for the client's hang-up
	}
	return n, err
}

// Close ends reading. What has not been read stays where it is: net/http's own Close would wait
// for it, and take the connection for one that can be kept.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// unread reports whether something of the body has not been read, and whether that may be waited
// for: so little that the connection is worth it, and no other goroutine reads it.
func (b *body) unread() (some, wait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.whole, !b.whole && !b.broken && !b.streamed && (b.size < 0 || b.size-b.read <= smallRest)
}

// drain reads the rest of the body if it comes soon and is small, and reports whether it was read
// whole.
func (b *body) drain(until time.Time) (whole bool) {
	some, wait := b.unread()
	if !wait {
		return !some
	}
	_ = b.control.SetReadDeadline(until) // a connection that takes no deadline has none
	_, _ = io.CopyN(io.Discard, rest{b}, smallRest+1)
	if some, _ = b.unread(); some {
		return false
	}
	_ = b.control.SetReadDeadline(time.Time{})
	return true
}

// abandon ends whatever waits for the body, and returns when nothing does: net/http lifts the
// deadline again if it finds a read under way, and then waits for the rest.
func (b *body) abandon() {
	b.mu.Lock()
	b.closed = true
	_ = b.control.SetReadDeadline(time.Unix(1, 0))
	b.mu.Unlock()
	b.reading.Lock()
	defer b.reading.Unlock()
}

// rest reads a body that its handler may have closed.
type rest struct{ *body }

func (r rest) Read(into []byte) (int, error) { return r.readOn(into) }

// Stream says of a request's body that another goroutine goes on reading it while the answer is
// written, as a proxy does, and bounds how long the client may send nothing; 0 = as long as the
// request may take.
func Stream(r *http.Request, stall time.Duration) {
	if b, ok := r.Context().Value(bodyKey{}).(*body); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.streamed, b.stall = true, stall
	}
}

type bodyKey struct{}

// answer is what a request with a body is answered through.
type answer struct {
	http.ResponseWriter
	body  *body
	begun bool
	taken bool      // the connection was taken over
	until time.Time // how long the rest of the body may take
}

// WriteHeader begins the answer. A connection on which more of the request's body may come is
// closed after it.
func (a *answer) WriteHeader(status int) {
	if !a.begun && status >= http.StatusOK {
		a.begun, a.until = true, time.Now().Add(lingerTime)
		if !a.body.drain(a.until) {
			a.Header().Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(bytes []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(bytes)
}

// FlushError sends what was written.
func (a *answer) FlushError() error {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Hijack takes the connection over.
func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.taken = a.taken || err == nil
	return conn, buffered, err
}

// Unwrap lets net/http find the rest, such as deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// finish is the end of a request whose handler has returned, and not panicked.
func (a *answer) finish() {
	if a.taken {
		return
	}
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
}

// linger ends what waits for the body. The connection's Close waits for what the client still
// writes.
func (a *answer) linger(c *conn) {
	if some, _ := a.body.unread(); !some || a.taken {
		return
	}
	if c != nil && a.begun {
		c.linger(a.until)
	}
	a.body.abandon() // net/http reads on before it closes the connection
}

// answersFirst has a request answered without waiting for a body that nobody reads. HTTP/2 needs
// none of that: the end of a stream is not the end of its connection.
func answersFirst(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{from: r.Body, size: r.ContentLength, control: http.NewResponseController(w)}
		c, _ := r.Context().Value(connKey{}).(*conn)
		r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b)) // net/http keeps its own request, with its own body
		r.Body = b
		if r.ProtoMajor > 1 {
			next.ServeHTTP(w, r)
			return
		}
		a := &answer{ResponseWriter: w, body: b}
		defer a.linger(c)
		next.ServeHTTP(a, r)
		a.finish()
	})
}
