package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
)

// guard wraps the idempotency middleware for Echo. An error that the handler returns becomes its answer inside the guard, so that it is recorded like any other.
func (s *Server) guard(route idempotency.Route) echo.MiddlewareFunc {
	s.guarded = append(s.guarded, policyOf(route))
	middleware := s.tokens.Middleware(route)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Response()
			defer c.SetResponse(outer)
			middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				if err := next(c); err != nil {
					c.Error(err)
				}
			})).ServeHTTP(outer, c.Request())
			return nil
		}
	}
}

// policy is what a client may know of a guarded route.
type policy struct {
	Route       string   `json:"route"`
	Headers     []string `json:"headers"` // one of them belongs in the request
	Required    bool     `json:"required"`
	Policy      string   `json:"policy"`
	Lease       int64    `json:"lease_ms"`
	Retention   int64    `json:"retention_ms"`
	Fingerprint []string `json:"fingerprint"`
	MaxBody     int64    `json:"max_body_bytes"`
	Scope       string   `json:"scope,omitempty"` // tokens that were issued for another scope are refused
}

func policyOf(route idempotency.Route) policy {
	route = route.WithDefaults()
	return policy{
		Route: route.Name, Headers: route.Accept.Headers(), Required: !route.Optional, Policy: string(route.Policy),
		Lease: route.Lease.Milliseconds(), Retention: route.Retention.Milliseconds(),
		Fingerprint: []string{"method", "route", "path and query", "body"}, MaxBody: route.MaxBody, Scope: route.Scope,
	}
}

func (s *Server) policies(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string][]policy{"routes": s.guarded})
}
