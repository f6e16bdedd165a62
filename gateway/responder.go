package gateway

import (
	"bufio"
	"net"
	"net/http"
)

// responder is what the gateway answers through: it notes what is sent, and every answer gets the request's id. It is used by one request.
type responder struct {
	http.ResponseWriter
	id     string
	begun  func() // called when the answer starts to be sent
	status int    // of the final answer; 0 = nothing was sent
	bytes  int64
	hijack bool
}

// WriteHeader sends the headers. Informational answers (1xx) go through and are not the answer.
func (r *responder) WriteHeader(status int) {
	if status >= 200 && r.status == 0 {
		r.start(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *responder) start(status int) {
	r.status = status
	r.Header().Set(requestIDHeader, r.id)
	r.begun()
}

func (r *responder) Write(bytes []byte) (int, error) {
	if r.status == 0 {
		r.start(http.StatusOK)
	}
	n, err := r.ResponseWriter.Write(bytes)
	r.bytes += int64(n)
	return n, err
}

// Hijack hands the connection over, for an upgrade.
func (r *responder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.status, r.hijack = http.StatusSwitchingProtocols, true
	}
	return conn, buffered, err
}

// Unwrap lets net/http find the rest, such as Flush.
func (r *responder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
