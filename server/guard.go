package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/echov4"
	class "github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// errClosing refuses an operation that came when the server was about to end: nothing is claimed
// for it.
var errClosing = class.Refusal("this server is stopping; another one answers")

// guard wraps the idempotency middleware for Echo. An error that the handler returns becomes its
// answer inside the guard, so that it is recorded like any other, and within the handler's span.
func (s *Server) guard(route idempotency.Route) echo.MiddlewareFunc {
	s.guarded = append(s.guarded, route.Published())
	guarded := echov4.Wrap(s.tokens.Middleware(route))
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if s.draining.Closing.Load() {
				return errClosing
			}
			began := false
			defer func() { s.countGuarded(c.Response().Header(), began) }()
			return guarded(func(c echo.Context) error {
				began = true
				ctx, end := s.inHandler(c.Request().Context())
				defer end()
				c.SetRequest(c.Request().WithContext(ctx))
				if err := next(c); err != nil {
					c.Error(err)
				}
				return nil
			})(c)
		}
	}
}

func (s *Server) policies(c echo.Context) error {
	return c.JSON(http.StatusOK, wire.Policies{Routes: s.guarded})
}
