package gateway

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// responder is a request's response writer: it notes what is sent, and adds the request's id.
type responder struct {
	http.ResponseWriter
	request *http.Request // as it came
	id      string
	begun   func() // called when the answer starts to be sent
	status  int    // of the final answer; 0 = nothing was sent
	bytes   int64
	stall   time.Duration // how long the client may take nothing; 0 = for ever
	taken   net.Conn      // the connection, if it was handed over
}

// piece is how many bytes are sent at once: the client has to take them within the stall timeout.
const piece = 32 << 10

// WriteHeader sends the headers. Informational answers (1xx) go through and are not the answer.
func (r *responder) WriteHeader(status int) {
	if status >= 200 && r.status == 0 {
		r.status = status
		r.Header().Set(requestIDHeader, r.id)
		if text := r.Header().Get(statusTextHeader); text != "" {
			r.Header().Del(statusTextHeader)
			frontdoor.SayStatus(r.request, status, text)
		}
		if _, isThere := r.Header()["Content-Type"]; !isThere {
			r.Header()["Content-Type"] = nil // else net/http would guess one by the bytes
		}
		r.begun()
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *responder) Write(bytes []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	written := 0
	for {
		r.bound()
		n, err := r.ResponseWriter.Write(bytes[written:min(written+piece, len(bytes))])
		written += n
		r.bytes += int64(n)
		if err != nil || written >= len(bytes) {
			return written, err
		}
	}
}

// bound restarts the stall timeout. net/http lifts it after the request.
func (r *responder) bound() {
	if r.stall > 0 {
		// a connection that takes no deadline has none
		_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(r.stall))
	}
}

func (r *responder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status, r.taken = http.StatusSwitchingProtocols, conn
	}
	return conn, buffered, err
}

// Unwrap lets net/http find the rest, such as Flush.
func (r *responder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
