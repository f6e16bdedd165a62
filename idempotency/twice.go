package idempotency

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// How a gateway and the service behind it tell each other about an attempt.
const (
	// OperationHeader has [Attempt].Operation, for the service behind a gateway.
	OperationHeader = "Idempotency-Operation"
	// FenceHeader has [Attempt].Fence, likewise.
	FenceHeader = "Idempotency-Fence"
	// NotBegunHeader is how a service behind a gateway says, with an error status, that nothing was
	// done: "true". The key is free then, also for a corrected form.
	NotBegunHeader = "Idempotency-Not-Begun"
)

// within reports whether the request comes through a guard that has claimed the same operation: of
// this process, or of a gateway with the same store.
func (g *guard) within(r *http.Request, key Key) bool {
	if attempt, ok := FromContext(r.Context()); ok && attempt.Operation == key.record {
		return true
	}
	return r.Header.Get(OperationHeader) == key.record
}

// guardedTwice is the refusal of a request that waits for itself: the claim in its way is that of
// the guard around this one, by its fence. That guard records it as any answer: what stands between
// the two may have had an effect.
func (g *guard) guardedTwice(r *http.Request, key Key, err error) error {
	if !errors.Is(err, ErrInProgress) && !errors.Is(err, ErrMismatch) {
		return err
	}
	fence, _ := strconv.ParseInt(r.Header.Get(FenceHeader), 10, 64)
	if attempt, ok := FromContext(r.Context()); ok && attempt.Operation == key.record {
		fence = attempt.Fence
	}
	held, unread := g.tokens.Operation(r.Context(), key.record)
	if unread != nil || held.Fence != fence {
		return err // that guard has another store
	}
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
