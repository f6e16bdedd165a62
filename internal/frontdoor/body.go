package frontdoor

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The limits for the rest of a body whose request is already answered: net/http would wait for it
// as long as for any body, and delay the answer until then.
const (
	lingerTime = time.Second
	lingerSize = 1 << 20
	smallRest  = 256 << 10 // the most that is waited for so that the connection can be kept
)

// body is the body of a request, which knows whether it has been read whole. One goroutine may
// read while another answers.
type body struct {
	door    *Door
	load    *load
	conn    *conn // nil = it is not counted
	from    io.ReadCloser
	size    int64 // as the client said; -1 = it did not
	control *http.ResponseController

	since    atomic.Int64 // when the read under way began, in Unix nanoseconds; 0 = none is
	reading  sync.Mutex   // held while it is read
	mu       sync.Mutex
	read     int64
	whole    bool // read to its end
	broken   bool // it cannot be read to its end
	closed   bool
	left     bool // its request has been answered
	hurried  bool // the wait for its next piece is short
	streamed bool
	stall    time.Duration // how long nothing may come; 0 = as long as the request may take
}

func (b *body) Read(into []byte) (int, error) {
	if !b.begin() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.readOn(into)
	if !b.counts() {
		return n, err
	}
	if full := b.load.take(copies * int64(n)); full != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.broken = !b.whole
		return n, full
	}
	return n, err
}

// counts reports whether the body stays in memory: what is streamed does not.
func (b *body) counts() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.streamed
}

// begin reports whether the body may be read, and restarts the stall timeout.
func (b *body) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && b.stall > 0 {
		// a connection that takes no deadline has none
		_ = b.control.SetReadDeadline(time.Now().Add(b.stall))
	}
	return !b.closed
}

func (b *body) readOn(into []byte) (int, error) {
	b.reading.Lock()
	b.since.Store(time.Now().UnixNano())
	n, err := b.from.Read(into)
	b.since.Store(0)
	b.reading.Unlock()
	b.conn.reached()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read += int64(n)
	if !b.whole && errors.Is(err, io.EOF) {
		b.wholeLocked()
	}
	b.broken = b.broken || err != nil && !b.whole
	if b.whole && b.stall > 0 {
		// from now on net/http watches for the client's hang-up
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Close ends reading. It leaves the rest unread: net/http's own Close would wait for it, and keep
// the connection.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// unread reports whether a part of the body is unread, and whether to wait for it: only if it is so
// small that the connection is worth it, and no other goroutine reads it.
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

// wholeLocked notes that the body has come.
func (b *body) wholeLocked() {
	b.whole = true
	if !b.streamed {
		b.door.underWay.Add(1)
	}
}

// leave notes that its request has been answered.
func (b *body) leave(taken bool) {
	b.door.leaveBody(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left = true
	if (b.whole || b.streamed) && !taken {
		b.door.underWay.Add(-1)
	}
}

// abandon ends reads of the body, and returns when none is left: net/http lifts the deadline again
// if it finds a read under way, and then waits for the rest.
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

// Stream is for a body that another goroutine goes on reading while the answer is written, as in a
// proxy. It bounds how long the client may send nothing; 0 = as long as the request may take. It
// returns [ErrOverloaded] if there is no memory for that.
func Stream(r *http.Request, stall time.Duration) error {
	b, ok := r.Context().Value(bodyKey{}).(*body)
	if !ok {
		return Reserve(r.Context(), 0)
	}
	if err := b.load.take(streamMemory); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole && !b.streamed {
		b.door.underWay.Add(1) // what has come of it may have been passed on
	}
	if b.streamed = true; b.stall == 0 {
		b.stall = stall
	}
	return nil
}

type bodyKey struct{}
