// Package echov5 puts net/http middleware, such as package idempotency's, around Echo v5 handlers.
//
// It is a module of its own, so that what does not use Echo v5 does not have it among its modules.
//
// echo.WrapMiddleware does not do for a middleware that records answers: an Echo handler returns
// its error, and Echo makes an answer of it after the middleware has ended. The client of a handler
// that returns echo.NewHTTPError(402) would be told 200, and each repeat an empty 200. Wrap makes
// an answer of the error inside the middleware, so that it is recorded like any other.
package echov5

import (
	"context"
	"errors"
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/coatcheck/coatcheck/idempotency"
)

// Wrap makes Echo middleware of net/http middleware. Where the middleware runs the handler, an
// error that the handler returns becomes its answer there, by Echo's HTTPErrorHandler; middleware
// outside sees none, but for that of a handler whose time is over and which has answered nothing:
// what limits the time answers it, and a guard leaves the operation in doubt. Where the limit is
// within Wrap and answers nothing, the answer is 504. The handler's request
// is the one that the middleware passes on, with its context, and its response goes to the
// middleware; middleware outside has its own again afterwards. A panic passes through the
// middleware. The result is safe for concurrent use if the middleware is.
func Wrap(middleware func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			outer, asked := c.Response(), c.Request()
			defer func() { c.SetResponse(outer); c.SetRequest(asked) }()
			var late error
			middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				response := echo.NewResponse(w, c.Echo().Logger)
				c.SetResponse(response)
				switch err := next(c); {
				case err != nil && r.Context().Err() != nil && !response.Committed:
					late = err // the answer is up to what limits the time
				case err == nil && r.Context().Err() == nil && !response.Committed &&
					errors.Is(c.Request().Context().Err(), context.DeadlineExceeded):
					// a limit within has ended the handler, which has said nothing
					if attempt, isGuarded := idempotency.FromContext(r.Context()); isGuarded {
						attempt.Abandon()
					}
					response.WriteHeader(http.StatusGatewayTimeout)
				case err != nil:
					c.Echo().HTTPErrorHandler(c, err)
				}
			})).ServeHTTP(outer, asked)
			return late
		}
	}
}
