package gateway

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// clientBody is a request's body, whose client has to go on sending it. Two bounds of time keep a client that does not from holding the connection:
//
//   - on a request that is not guarded, how long it may send nothing at all;
//   - on all, how long what is left may take once the answer begins. net/http reads on before it sends an answer, for as long as the client likes, and a body that nobody wanted would hold
//     the answer back.
//
// It is safe for one reader and one answer at once. On nil, which is no body, its methods do nothing.
type clientBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration // of what is left

	mu    sync.Mutex
	stall time.Duration // how long nothing may come; 0 = for ever
	last  bool          // the answer has begun
	ended bool
	timed bool // a deadline is set
}

// follow takes over a request's body; nil if there is none.
func follow(w http.ResponseWriter, r *http.Request, limit time.Duration) *clientBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body := &clientBody{ReadCloser: r.Body, control: http.NewResponseController(w), limit: limit}
	r.Body = body
	return body
}

// pace bounds how long the client may send nothing.
func (b *clientBody) pace(stall time.Duration) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stall = stall
}

func (b *clientBody) Read(into []byte) (int, error) {
	b.expect()
	n, err := b.ReadCloser.Read(into)
	if errors.Is(err, io.EOF) { // after any other error net/http may go on to read
		b.end()
	}
	return n, err
}

// expect begins the time of a stall anew.
func (b *clientBody) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stall > 0 && !b.last && !b.ended {
		b.timeLocked(time.Now().Add(b.stall))
	}
}

// finish begins the time of what is left. Only the first call counts.
func (b *clientBody) finish() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.last && !b.ended {
		b.last = true
		b.timeLocked(time.Now().Add(b.limit))
	}
}

// end lifts the bound: the connection is then watched for the client's hang-up alone.
func (b *clientBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended = true; b.timed {
		b.timeLocked(time.Time{})
	}
}

func (b *clientBody) timeLocked(until time.Time) {
	b.timed = true
	_ = b.control.SetReadDeadline(until) // a connection that takes no deadline has none
}

// patience is how long the answer may be held back for what is left of the body.
func (b *clientBody) patience() time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0
	}
	return b.limit
}
