package server

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/echov4"
	class "github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// errClosing refuses an operation that came when the server was about to end: nothing is claimed
// for it.
var errClosing = class.Refusal("this server is stopping; another one answers")

// admit is asked before an operation is claimed.
func (s *Server) admit() error {
	if s.draining.Closing.Load() {
		return errClosing
	}
	return nil
}

// reserveAnswer is asked before a recorded answer of so many bytes is read. The answer is in memory
// as Redis sent it, as it was stored, and as it is sent.
func reserveAnswer(ctx context.Context, size int64) error { return frontdoor.Reserve(ctx, 4*size) }

// guards are the guarded routes: their middleware, and their published policy.
type guards struct {
	tokens   *idempotency.Tokens
	events   *events.Log
	tracer   trace.Tracer // nil = no request is traced
	policies api.Policies
}

// around wraps the idempotency middleware for Echo. An error that the handler returns becomes its
// answer inside the guard, so that it is recorded like any other, and within the handler's span.
func (g *guards) around(route idempotency.Route) echo.MiddlewareFunc {
	g.policies.Routes = append(g.policies.Routes, route.Published())
	guarded := echov4.Wrap(g.tokens.Middleware(route))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			began := false
			defer func() { g.count(c.Response().Header(), began) }()
			return guarded(func(c echo.Context) error {
				began = true
				if g.tracer != nil {
					ctx, span := g.tracer.Start(c.Request().Context(), "handler")
					defer span.End()
					c.SetRequest(c.Request().WithContext(ctx))
				}
				if err := next(c); err != nil {
					c.Error(err)
				}
				return nil
			})(c)
		}
	}
}

// count records the outcome of a request: its answer is a replay, or its handler began.
func (g *guards) count(header http.Header, began bool) {
	switch {
	case began:
		g.events.Count(events.OperationClaimed)
	case header.Get("Idempotent-Replayed") == "true":
		g.events.Count(events.OperationReplayed)
	}
}

// show answers GET /idempotency-policy.
func (g *guards) show(c echo.Context) error { return c.JSON(http.StatusOK, g.policies) }
