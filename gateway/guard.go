package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/redisstore"
)

type guardedRoute struct {
	Route

	handler http.Handler // the guard, with the upstream behind it; nil = the route is unguarded
}

// ServeHTTP guards a request. It makes the route a handler that a mux finds.
func (r *guardedRoute) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.handler.ServeHTTP(w, request)
}

// takes reports whether a path with these delimiters encoded is plain on the route; nil is no
// route.
func (r *guardedRoute) takes(encoded string) bool {
	allowed := ""
	if r != nil {
		allowed = strings.Join(r.Encoded, "")
	}
	return strings.Trim(encoded, allowed) == ""
}

// admits refuses what cannot be guarded: the answer to an upgrade is a connection, not a record.
func (g *Gateway) admits(w http.ResponseWriter, r *http.Request, x *exchange) bool {
	if isH2C(r.Header) {
		dropUpgrade(r.Header)
	}
	if upgrade(r.Header) == "" || x.route == nil || x.route.passes(r) {
		return true
	}
	g.refuseField(w, r, api.InvalidRequest, "Upgrade",
		"Upgrade: a guarded route does not switch protocols; nothing was sent to the service behind the gateway")
	return false
}

// passes reports whether a request passes unguarded: the route is unguarded, or needs no header and
// the request has none.
func (r *guardedRoute) passes(request *http.Request) bool {
	if r.Unguarded || !r.Optional || len(r.KeyFromBody) > 0 { // the body has to be read first
		return r.Unguarded
	}
	taken := append([]string{idempotency.TokenHeader, idempotency.KeyHeader}, r.KeyHeaders...)
	if r.PassOther {
		taken = r.Published().Headers
	}
	for _, names := range taken {
		for name := range strings.SplitSeq(names, idempotency.KeyJoint) {
			if len(request.Header.Values(name)) > 0 {
				return false
			}
		}
	}
	return true
}

// upstream is the handler that a route guards: it sends the request to the upstream, bounded in
// time by the route and not by the client.
func (g *Gateway) upstream(route *guardedRoute) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r.Context())
		if _, isGuarded := idempotency.FromContext(r.Context()); !isGuarded {
			g.passUnguarded(w, r, x)
			return
		}
		x.outcome = granted
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		x.granted = ctx
		limit := time.AfterFunc(route.UpstreamTimeout, func() { cancel(errTimeout) })
		defer limit.Stop()
		defer context.AfterFunc(g.hard, func() { cancel(context.Cause(g.hard)) })()
		// a recorded answer may take its time to be sent
		x.onSend = func() { limit.Stop() }
		g.exchangeOnce(w, r.WithContext(ctx))
	})
}

// exchangeOnce sends a request of an attempt to the upstream. If the attempt was replaced, the
// guard refuses its answer, answers the client itself, and ReverseProxy panics.
func (g *Gateway) exchangeOnce(w http.ResponseWriter, r *http.Request) {
	answer := &guardedAnswer{ResponseWriter: w, request: r}
	defer func() {
		if reason := recover(); reason != nil && !errors.Is(answer.err, redisstore.ErrLost) {
			panic(reason)
		}
	}()
	g.once.ServeHTTP(answer, r)
}

// guardedAnswer notes the error with which the guard refuses an answer.
type guardedAnswer struct {
	http.ResponseWriter
	request *http.Request
	err     error
}

func (a *guardedAnswer) Write(bytes []byte) (int, error) {
	frontdoor.Count(a.request, int64(len(bytes))) // it is kept until it is recorded
	n, err := a.ResponseWriter.Write(bytes)
	if err != nil && a.err == nil {
		a.err = err
	}
	return n, err
}

// Unwrap lets net/http find Flush.
func (a *guardedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// boundBody bounds how long a body may take to arrive. net/http lifts the bound at its end.
func boundBody(w http.ResponseWriter, body io.ReadCloser, limit time.Duration) io.ReadCloser {
	if body == nil || body == http.NoBody {
		return body
	}
	return &timedBody{ReadCloser: body, control: http.NewResponseController(w), limit: limit}
}

type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
	limit   time.Duration
	start   sync.Once
}

func (b *timedBody) Read(into []byte) (int, error) {
	// a connection that takes no deadline has none
	b.start.Do(func() { _ = b.control.SetReadDeadline(time.Now().Add(b.limit)) })
	return b.ReadCloser.Read(into)
}
