package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
)

// crossOrigin lets pages of the configured origins ask from a browser, with keys and without
// cookies. Without origins it adds nothing, and browsers keep other pages out.
func (s *Server) crossOrigin() echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper:         func(echo.Context) bool { return s.origins.Load().None() },
		AllowOriginFunc: func(origin string) (bool, error) { return s.origins.Load().Has(origin), nil },
		AllowMethods:    []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete},
		AllowHeaders: []string{
			echo.HeaderAuthorization, "X-API-Key", echo.HeaderAccept, echo.HeaderContentType, echo.HeaderXRequestID,
			"Idempotency-Key", idempotency.TokenHeader, leaseHeader, "Prefer",
		},
		ExposeHeaders: []string{
			echo.HeaderXRequestID, echo.HeaderRetryAfter, echo.HeaderLocation, echo.HeaderWWWAuthenticate, "Idempotent-Replayed",
			"Idempotent-Body", "Link", "RateLimit", "RateLimit-Policy",
		},
		MaxAge: 600, // seconds that a browser remembers the answer for
	})
}

// SetCORSOrigins replaces [Config].CORSOrigins for later requests. It is safe for concurrent use.
func (s *Server) SetCORSOrigins(origins []string) {
	s.origins.Store(frontdoor.NewOrigins(origins))
}
