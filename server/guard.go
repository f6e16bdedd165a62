package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// errClosing refuses an operation that came when the server was about to end: nothing is claimed
// for it.
var errClosing = redisstore.Refusal("this server is stopping; another one answers")

// guard wraps the idempotency middleware for Echo. An error that the handler returns becomes its
// answer inside the guard, so that it is recorded like any other.
func (s *Server) guard(route idempotency.Route) echo.MiddlewareFunc {
	s.guarded = append(s.guarded, route.Published())
	middleware := s.tokens.Middleware(route)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if s.closing.Load() {
				return errClosing
			}
			outer := c.Response()
			defer c.SetResponse(outer)
			began := false
			defer func() { s.countGuarded(outer.Header(), began) }()
			middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				began = true
				ctx, end := s.inHandler(r.Context())
				defer end()
				c.SetRequest(r.WithContext(ctx))
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil
		}
	}
}

func (s *Server) policies(c echo.Context) error {
	return c.JSON(http.StatusOK, wire.Policies{Routes: s.guarded})
}
