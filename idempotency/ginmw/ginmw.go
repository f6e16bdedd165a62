// Package ginmw puts net/http middleware, such as package idempotency's, around Gin handlers.
//
// It is a module of its own, so that what does not use Gin does not have it among its modules.
//
// A middleware of Gin goes on to the next handler unless it says otherwise: one that was made by
// hand, and does not call Abort where the guard has answered by a replay, answers *and* pays again.
// A Gin handler also sends its status late, and may leave the answer to other middleware. Wrap does
// all of that: what the handler answers is complete where the middleware ends.
package ginmw

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/coatcheck/coatcheck/idempotency"
)

// Wrap makes Gin middleware of net/http middleware. The handlers after it run where the middleware
// runs its handler, once, with the request and the response that it passes on; if it does not run
// it, as after a replay, none of them does. A chain that adds to Context.Errors and answers nothing
// has the answer 500: what would make an answer of such errors belongs after Wrap. One that answers
// nothing since its time is over has none: what limits the time answers, and a guard leaves the
// operation in doubt. Where the limit is after Wrap and answers nothing, the answer is 504.
// Middleware before it has its own request and response again afterwards, also when a panic passes
// through.
//
// The request's Pattern is the method and the path of Gin's route, "POST /orders/:id", where it had
// none. The result is safe for concurrent use if the middleware is.
func Wrap(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		outer, request := c.Writer, c.Request
		defer func() { c.Writer, c.Request = outer, request }()
		ran := false
		middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ran = true
			inner := &writer{ResponseWriter: w, status: http.StatusOK, size: unsent}
			c.Writer, c.Request = inner, r
			before := len(c.Errors)
			c.Next()
			answered := inner.Written() || inner.status != http.StatusOK
			switch {
			case !answered && r.Context().Err() != nil:
				return
			case !answered && errors.Is(c.Request.Context().Err(), context.DeadlineExceeded):
				// a limit within has ended the handler, which has said nothing
				if attempt, isGuarded := idempotency.FromContext(r.Context()); isGuarded {
					attempt.Abandon()
				}
				inner.status = http.StatusGatewayTimeout
			case !answered && len(c.Errors) > before:
				inner.status = http.StatusInternalServerError
			}
			inner.WriteHeaderNow()
		})).ServeHTTP(outer, asked(c))
		if !ran {
			c.Abort()
		}
	}
}

// asked is the request with the pattern of Gin's route.
func asked(c *gin.Context) *http.Request {
	r := c.Request.WithContext(c.Request.Context())
	if r.Pattern == "" && c.FullPath() != "" {
		r.Pattern = r.Method + " " + c.FullPath()
	}
	return r
}

// writer is a response as Gin knows it: the status is sent with the first byte, or at the end.
type writer struct {
	http.ResponseWriter

	status, size int
}

const unsent = -1 // the size before anything is sent, as Gin has it

// WriteHeader sets the status, which is sent later.
func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

// WriteHeaderNow sends the status, unless it has been sent.
func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

// Write sends the status and some of the body.
func (w *writer) Write(some []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.ResponseWriter.Write(some)
	w.size += n
	return n, err
}

// WriteString is Write of a string.
func (w *writer) WriteString(some string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.ResponseWriter, some)
	w.size += n
	return n, err
}

// Status is what was set last.
func (w *writer) Status() int { return w.status }

// Size is how many bytes of the body were sent; -1 if not even the status was.
func (w *writer) Size() int { return w.size }

// Written reports whether the status has been sent.
func (w *writer) Written() bool { return w.size != unsent }

// Unwrap lets [http.ResponseController] find what the middleware's response can do.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush sends what was written, if the middleware does.
func (w *writer) Flush() {
	w.WriteHeaderNow()
	// a response that cannot sends when it chooses
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack takes the connection over, if the middleware allows that: a guard does not.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// CloseNotify never notifies: a guarded handler that has begun outlives its client.
func (*writer) CloseNotify() <-chan bool { return nil }

// Pusher has none: a push could not be replayed.
func (*writer) Pusher() http.Pusher { return nil }
