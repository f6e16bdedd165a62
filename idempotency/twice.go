package idempotency

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// How a gateway and the service behind it tell each other about an attempt.
const (
	// OperationHeader has [Attempt].Operation, for the service behind a gateway.
	OperationHeader = "Idempotency-Operation"
	// NotBegunHeader is how a service behind a gateway says, with an error status, that nothing was
	// done: "true". The key is free then, also for a corrected form.
	NotBegunHeader = "Idempotency-Not-Begun"
)

// within reports whether the request comes through a guard that has claimed the same operation: of
// this process, or of a gateway with the same store.
func (g *guard) within(r *http.Request, key OperationKey) bool {
	if attempt, ok := FromContext(r.Context()); ok && attempt.Operation == key.record {
		return true
	}
	return r.Header.Get(OperationHeader) == key.record
}

// guardedTwice is the refusal of a request that waits for itself: the guard around this one has the
// claim. Nothing was done, so that its key stays free.
func guardedTwice(w http.ResponseWriter, r *http.Request, err error) error {
	if !errors.Is(err, ErrInProgress) && !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrInDoubt) {
		return err // it has another store, or none now
	}
	if attempt, ok := FromContext(r.Context()); ok {
		attempt.NotBegun()
	}
	w.Header().Set(NotBegunHeader, "true")
	return ErrGuardedTwice
}

// answeredBody is the body of a request that the guard has answered, by a replay or a refusal. What
// reads it is a handler that runs all the same, in a chain that has not been ended.
type answeredBody struct {
	sync.Once

	guard   *guard
	request *http.Request
}

// answered notes that the guard has answered the request without its handler. Who gave the request
// to the guard has it still, and may give it to the handler.
func (g *guard) answered(r *http.Request) {
	if r.Body == nil {
		return // no server's request
	}
	r.Body = &answeredBody{guard: g, request: r}
}

// errAnswered is what a handler gets that runs for a request which has its answer.
var errAnswered = fmt.Errorf(
	"idempotency: the request has been answered by its guard, and no handler may run for it: %w", io.ErrUnexpectedEOF)

// Read fails, and says once in the log what is wrong.
func (b *answeredBody) Read([]byte) (int, error) {
	b.Do(func() {
		b.guard.tokens.log.ErrorContext(b.request.Context(),
			"idempotency: a handler runs for a request that its guard has answered, by a replay or a refusal: "+
				"the operation may run twice. The wrapper around Tokens.Middleware has to end the chain of handlers "+
				"where the guard does not call the next one: in Gin by c.Abort(), or with idempotency/ginmw",
			"method", b.request.Method, "route", b.guard.route.name(b.request))
	})
	return 0, errAnswered
}

// Close implements [io.Closer].
func (*answeredBody) Close() error { return nil }
