package gateway

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/requestlog"
)

const requestIDHeader = "X-Request-Id"

// exchange is the gateway's record of one request. The goroutine that serves the request owns it;
// contact alone is shared.
type exchange struct {
	id      string
	host    string // that the client asked under
	began   time.Time
	route   *guardedRoute // nil = no route names it
	outcome outcome
	code    api.Code // of the problem that answers it; "" = none does
	contact contact
	granted context.Context // of the attempt: its cause tells how it ended
	span    trace.Span      // nil if the request is not traced
	onSend  func()          // called when the answer starts to be sent
}

// outcome is the outcome of a request, for metrics and the log.
type outcome string

// The outcomes of a request. A replay is the outcome when nothing else happened.
const (
	unguarded    outcome = "unguarded"
	unguardedKey outcome = "unguarded_key" // with a header that asks to run it once
	granted      outcome = "granted"
	replay       outcome = "replay"
	inProgress   outcome = "in_progress"
	inDoubt      outcome = "in_doubt"
	superseded   outcome = "superseded"
	mismatch     outcome = "mismatch"
	unknownToken outcome = "unknown_token"
	keyError     outcome = "key_error"
	unauthorized outcome = "unauthorized" // its bearer token does not verify
	noKeys       outcome = "no_keys"      // there is nothing yet to verify its bearer token with
	storeError   outcome = "store_error"
	badRequest   outcome = "bad_request"
	routeUnknown outcome = "route_unknown"
	atStop       outcome = "stopping"
	overloaded   outcome = "overloaded"
	own          outcome = "own" // a page of the gateway itself
)

var outcomes = []outcome{
	unguarded, unguardedKey, granted, replay, inProgress, inDoubt, superseded, mismatch, unknownToken, keyError, unauthorized, noKeys,
	storeError, badRequest, routeUnknown, atStop, overloaded, own,
}

type exchangeKey struct{}

// begin notes that a request has come.
func begin(r *http.Request) (*exchange, *http.Request) {
	x := &exchange{id: requestlog.IDOf(r), host: r.Host, began: time.Now(), onSend: func() {}}
	return x, r.WithContext(context.WithValue(requestlog.With(r.Context(), x.id), exchangeKey{}, x))
}

func exchangeOf(ctx context.Context) *exchange {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("gateway: a request that did not come through the gateway")
	}
	return x
}

// match names the route for metrics and the log, "-" if there is none.
func (x *exchange) match() string {
	if x.route == nil {
		return "-"
	}
	return x.route.Name
}
