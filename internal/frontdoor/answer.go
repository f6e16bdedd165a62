package frontdoor

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// answer is a request's response writer.
type answer struct {
	http.ResponseWriter
	door  *Door
	load  *load
	many  bool  // its connection has many requests at once
	body  *body // nil = there is none
	last  bool  // the connection ends with it
	begun bool
	taken bool      // the connection was taken over
	until time.Time // how long the rest of the body may take

	mu      sync.Mutex
	waiting bool // it waits for its client
	hurried bool // and does so for a moment at most
}

// WriteHeader begins the answer. A connection on which more of the request's body may come is
// closed after it.
func (a *answer) WriteHeader(status int) {
	if !a.begun && status >= http.StatusOK {
		a.begun, a.until = true, time.Now().Add(lingerTime)
		if a.body != nil && !a.body.drain(a.until) || a.last {
			a.Header().Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(bytes []byte) (int, error) {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	if size := int64(len(bytes)); size > freeAnswer {
		tooMany := a.load.add(size)
		defer a.load.add(-size)
		defer a.waits()()
		if tooMany { // an answer that is not taken now is held in memory
			a.hurry()
			a.door.reclaim()
		}
	}
	return a.ResponseWriter.Write(bytes)
}

// waits notes that the answer waits for its client, until done.
func (a *answer) waits() (done func()) {
	a.setWaiting(true)
	a.door.bodiesMu.Lock()
	defer a.door.bodiesMu.Unlock()
	a.door.unsent[a] = struct{}{}
	return func() {
		a.setWaiting(false)
		a.door.bodiesMu.Lock()
		defer a.door.bodiesMu.Unlock()
		delete(a.door.unsent, a)
	}
}

func (a *answer) setWaiting(waiting bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting, a.hurried = waiting, false
}

// hurry gives the client a moment to take what waits for it. A second call gives it no other one.
func (a *answer) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.waiting || a.hurried {
		return
	}
	a.hurried = true
	_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(lingerTime))
}

func (a *answer) FlushError() error {
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

func (a *answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(a.ResponseWriter).Hijack()
	a.taken = a.taken || err == nil
	return conn, buffered, err
}

// Unwrap lets net/http find the rest, such as deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// finish ends a request whose handler has returned without a panic.
func (a *answer) finish() {
	if !a.taken && !a.begun && (a.last || a.body != nil) {
		a.WriteHeader(http.StatusOK)
	}
	if a.many && a.begun {
		defer a.waits()()
		// net/http would flush only after the memory is no longer counted
		_ = http.NewResponseController(a.ResponseWriter).Flush()
	}
}

// linger ends reads of the body. The connection's Close waits for the client's last bytes.
func (a *answer) linger(c *conn) {
	if some, _ := a.body.unread(); !some || a.taken {
		return
	}
	if c != nil && a.begun {
		c.linger(a.until)
	}
	a.body.abandon() // net/http reads on before it closes the connection
}

// answers runs a handler without waiting for a body that it does not read, and counts the request's
// memory.
func (d *Door) answers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*conn)
		c.busy(r.ProtoMajor)
		many := r.ProtoMajor > 1 && c != nil
		if many {
			r = r.WithContext(context.WithValue(r.Context(), loadKey{}, d.oneOfMany(r)))
		}
		taken := loadOf(r.Context())
		defer taken.release()
		a := &answer{ResponseWriter: w, door: d, load: taken, many: many, last: d.draining.Load() && r.Header.Get("Upgrade") == ""}
		if r.Body != nil && r.Body != http.NoBody {
			d.withBody(a, r, c, next)
			return
		}
		d.underWay.Add(1)
		defer func() {
			if !c.wasTaken() {
				d.underWay.Add(-1)
			}
		}()
		next.ServeHTTP(a, r)
		a.finish()
	})
}

// oneOfMany counts a request of a connection with many at once. It aborts a request for which there
// is not even memory for a refusal.
func (d *Door) oneOfMany(r *http.Request) *load {
	one := &load{door: d}
	if one.add(requestMemory + copies*headerSize(r.Header)) {
		abort := d.bytes.Load() > d.config.MaxBytes+d.config.MaxBytes/4
		if abort {
			one.release()
		}
		d.reclaim()
		if abort {
			panic(http.ErrAbortHandler)
		}
	}
	return one
}

// withBody answers a request with a body. HTTP/2 does not need its connection closed because of
// one: the end of a stream is not the end of its connection.
func (d *Door) withBody(a *answer, r *http.Request, c *conn, next http.Handler) {
	b := &body{door: d, load: a.load, conn: c, from: r.Body, size: r.ContentLength, control: http.NewResponseController(a.ResponseWriter)}
	d.enterBody(b)
	defer func() { b.leave(c.wasTaken()) }()
	// net/http keeps its own request, with its own body
	r = r.WithContext(context.WithValue(r.Context(), bodyKey{}, b))
	r.Body = b
	if r.ProtoMajor == 1 {
		a.body = b
		defer a.linger(c)
	}
	next.ServeHTTP(a, r)
	a.finish()
}

func headerSize(header http.Header) (size int64) {
	for name, values := range header {
		for _, value := range values {
			size += int64(len(name) + len(value))
		}
	}
	return size
}
