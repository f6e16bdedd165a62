// Package fiberv3 puts net/http middleware, such as package idempotency's, around Fiber v3
// handlers.
//
// It is a module of its own, so that what does not use Fiber does not have it among its modules.
//
// Fiber's adaptor.HTTPMiddleware does not do for a middleware that records answers: it runs the
// handler after the middleware has ended, so that an empty 200 is recorded, and it gives the
// middleware the last of two Idempotency-Keys. Wrap does not use it. Under Wrap the handler runs
// within the middleware, on the same goroutine, and its answer goes through the middleware.
//
// # What differs from net/http
//
//   - Fiber reads a body into memory before any handler runs, up to its own BodyLimit. With
//     StreamRequestBody only as much is read as the middleware allows.
//   - A form of parts (multipart/form-data) is taken apart by Fiber before the guard sees it, and
//     counts without the order of its parts.
//   - A stream is held back like any other answer, and what exceeds [idempotency.Route].MaxAnswer
//     is sent as a stream, after "done, not kept" has been recorded. One that breaks off before
//     that leaves the token in doubt.
//   - Nothing notices that a client has hung up: one that waits (Prefer: wait=n) waits to the end.
//   - A handler that hijacks its connection (a WebSocket) is answered 500, since what it sends
//     could not be recorded. Ctx.End and Ctx.Drop end a connection before anything is recorded:
//     they are not for guarded handlers.
//   - Fiber's middleware timeout lets a handler go on after its own answer: when it fires, within
//     the guard or around it, the token is in doubt, unless the handler has not begun.
//   - A panic passes through, and without Fiber's middleware recover around the guard it ends the
//     process, as any panic does in Fiber. The token is in doubt then.
//
// A request that the middleware passes on with the response that it got, as a guard does without a
// key or for a GET, costs only the copy of its headers: its answer, stream or hijack is Fiber's.
package fiberv3

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/gofiber/fiber/v3"

	"github.com/coatcheck/coatcheck/idempotency"
)

// Wrap makes a Fiber handler of net/http middleware. The handlers after it run where the middleware
// runs its handler, once; if it does not run it, as after a replay, none of them does. An error of
// theirs becomes the answer there, by Fiber's ErrorHandler, and is recorded like any other.
//
// Of the request that the middleware passes on, the handlers get the context, as Ctx.Context: that
// is what [idempotency.FromContext] takes, and not the Ctx itself. The middleware's request has the
// context that Ctx.Context was before, which is where [idempotency.Config].Principal finds what
// other middleware of Fiber knows of the caller, if that puts it there (PassLocalsToContext).
//
// The request's Pattern is the method and the path of Fiber's route, "POST /orders/:id". A handler
// of App.Use has none, since Fiber does not yet know the route: there each path is a scope of its
// own, unless [idempotency.Route] has a Name. The result is safe for concurrent use if the
// middleware is.
func Wrap(middleware func(http.Handler) http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		r, err := asked(c)
		if err != nil {
			return fiber.NewError(fiber.StatusBadRequest, "the request's target is no URL: "+err.Error())
		}
		outer := c.Context()
		x := &exchange{c: c, header: headerOf(c)}
		defer func() {
			if !c.IsAbandoned() {
				c.SetContext(outer)
			}
		}()
		middleware(http.HandlerFunc(x.run)).ServeHTTP(x, r)
		return x.end()
	}
}

// run runs Fiber's handlers, and gives their answer to the middleware.
func (x *exchange) run(w http.ResponseWriter, r *http.Request) {
	if x.abandoned(w, r, (*idempotency.Attempt).Release) {
		return
	}
	x.c.SetContext(r.Context())
	put(x.c, w.Header())
	if x.c.Request().IsBodyStream() {
		if err := x.takeBody(r); err != nil {
			x.answer(w, err)
			return
		}
	}
	if w == http.ResponseWriter(x) { // nothing is recorded: the answer stays where it is
		x.direct, x.err = true, x.c.Next()
		return
	}
	err := x.c.Next()
	if x.abandoned(w, r, (*idempotency.Attempt).Abandon) {
		return
	}
	if fasthttp := x.c.RequestCtx(); fasthttp.Hijacked() {
		fasthttp.Hijack(nil)
		fasthttp.HijackSetNoResponse(false)
		err = errHijacked
	}
	if status := x.c.Response().StatusCode(); err == nil && (status < 100 || status > 999) {
		err = fmt.Errorf("fiberv3: status %d: from 100 to 999", status)
	}
	x.answer(w, err)
	// while the answer was read: Fiber's timeout writes its own there
	x.abandoned(w, r, (*idempotency.Attempt).Abandon)
}

var errHijacked = fiber.NewError(fiber.StatusInternalServerError,
	"fiberv3: a guarded handler cannot hijack its connection: what it sends could not be recorded")

// abandoned reports whether Fiber's timeout has answered, and says of a guarded attempt what that
// makes of it. The response is not this exchange's any more.
func (x *exchange) abandoned(w http.ResponseWriter, r *http.Request, state func(*idempotency.Attempt)) bool {
	if !x.c.IsAbandoned() {
		return false
	}
	if attempt, guarded := idempotency.FromContext(r.Context()); guarded {
		state(attempt)
	}
	w.WriteHeader(http.StatusRequestTimeout)
	return true
}

// answer gives the handlers' answer, or that to their error, to the middleware.
func (x *exchange) answer(w http.ResponseWriter, err error) {
	if err == nil && x.c.Response().IsBodyStream() {
		x.copyStream(w, x.takeStream())
		return
	}
	if err != nil && x.c.App().ErrorHandler(x.c, err) != nil {
		_ = x.c.SendStatus(fiber.StatusInternalServerError) // as Fiber does; it has no error
	}
	x.head(w)
	// the recorder says to the middleware what it does not take
	_, _ = w.Write(x.c.Response().Body())
}

// head gives the status and the headers.
func (x *exchange) head(w http.ResponseWriter) {
	clear(w.Header())
	maps.Copy(w.Header(), headerOf(x.c))
	w.WriteHeader(x.c.Response().StatusCode())
}
