package idempotency

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"strconv"
)

// recorder holds a handler's answer back until it has been recorded. An answer that grows over the
// limit is recorded as "done, not kept" and is sent directly from then on. A flush before that
// changes nothing: an answer is never sent before it is recorded. It is used by one handler.
type recorder struct {
	http.ResponseWriter
	header   http.Header
	answer   Answer
	limit    int
	bodiless bool               // the request is HEAD
	overflow func(Answer) error // records an answer that is too large to keep
	through  bool               // sending started
	refused  error              // the answer may not be sent
}

func newRecorder(w http.ResponseWriter, r *http.Request, limit int, overflow func(Answer) error) *recorder {
	header := w.Header().Clone()
	if header == nil {
		header = http.Header{}
	}
	return &recorder{ResponseWriter: w, header: header, limit: limit, bodiless: r.Method == http.MethodHead, overflow: overflow}
}

// Header returns the headers of the answer to be. What changes after sending has started counts for
// trailers alone.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader records the status. Informational answers (1xx) are not part of the answer and are
// dropped: they cannot be replayed.
func (r *recorder) WriteHeader(status int) {
	validStatus(status)
	if status < http.StatusOK || r.answer.Status != 0 {
		return
	}
	r.answer.Status = status
}

// Write keeps the bytes, or sends them once the answer has grown over the limit.
func (r *recorder) Write(bytes []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	length, announced := r.announced()
	if announced && !r.through && int64(len(r.answer.Body)+len(bytes)) > length {
		return 0, http.ErrContentLength
	}
	if !r.through && r.refused == nil && len(r.answer.Body)+len(bytes) > r.limit {
		r.spill()
	}
	switch {
	case r.refused != nil:
		return 0, r.refused
	case r.answer.Status == http.StatusNoContent || r.answer.Status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case r.through:
		return r.ResponseWriter.Write(bytes)
	}
	r.answer.Body = append(r.answer.Body, bytes...)
	return len(bytes), nil
}

// announced is the length that the answer says to have; ok is false if it says none. net/http drops
// one that is no number.
func (r *recorder) announced() (length int64, ok bool) {
	text := r.header.Get("Content-Length")
	if text == "" {
		return 0, false
	}
	length, err := strconv.ParseInt(text, 10, 64)
	if err != nil || length < 0 {
		r.header.Del("Content-Length")
		return 0, false
	}
	return length, true
}

// cut reports whether the handler has ended before it had written what it announced. Of an answer
// that is being sent its client sees it, since net/http cuts the connection.
func (r *recorder) cut() bool {
	length, announced := r.announced()
	return announced && !r.through && !r.bodiless && r.answer.Status != http.StatusNotModified && r.answer.Status != http.StatusNoContent &&
		int64(len(r.answer.Body)) < length
}

// Flush sends what has been written, if sending has started.
func (r *recorder) Flush() {
	if r.through {
		// a writer without Flush sends when it chooses
		_ = http.NewResponseController(r.ResponseWriter).Flush()
	}
}

// Unwrap lets [http.ResponseController] find deadlines: a handler may take longer than the server's
// timeout, and its answer is sent after that.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Hijack refuses to hand the connection over: what is sent on it could not be recorded.
func (*recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, http.ErrNotSupported }

// CloseNotify is for Gin's Context.Stream, which takes it for granted. It never notifies: a handler
// that has begun outlives its client.
func (*recorder) CloseNotify() <-chan bool { return nil }

func (r *recorder) spill() {
	if r.refused = r.overflow(r.kept(Answer{Status: r.answer.Status, NotKept: true})); r.refused != nil {
		return
	}
	r.send()
}

// finished is the answer when the handler has returned, with the headers as they are then.
func (r *recorder) finished() Answer {
	r.WriteHeader(http.StatusOK)
	return r.kept(r.answer)
}

// send starts sending: all headers, those that are never replayed included, and what was kept back.
// An answer that is being sent gets its trailers: net/http takes nothing else of its headers.
func (r *recorder) send() {
	header := r.ResponseWriter.Header()
	if r.through {
		maps.Copy(header, r.header)
		return
	}
	r.through = true
	clear(header)
	maps.Copy(header, r.header)
	unguessed(header)
	trailers := takeTrailers(header, header)
	defer maps.Copy(header, trailers)
	r.ResponseWriter.WriteHeader(r.answer.Status)
	if len(r.answer.Body) > 0 {
		// the client may have hung up; the answer is recorded
		_, _ = r.ResponseWriter.Write(r.answer.Body)
	}
}

// maxStatus is the largest status that can be recorded. With a larger one nobody knows what the
// handler did.
const maxStatus = 599

// validStatus panics for an invalid status, as net/http does.
func validStatus(status int) {
	if status < http.StatusContinue || status > 999 {
		panic("idempotency: a handler gave a status that is none")
	}
}
