package server

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/idempotency"
)

// Handle adds a route of the test's own to a service that has not begun to serve.
func (s *Server) Handle(method, path string, handler http.HandlerFunc) {
	s.echo.Add(method, path, echo.WrapHandler(handler))
}

// HandleGuarded adds a guarded route of the test's own. An error that the handler returns becomes its answer, as with the service's own routes.
func (s *Server) HandleGuarded(method, path string, route idempotency.Route, handler func(http.ResponseWriter, *http.Request) error) {
	s.echo.Add(method, path, func(c echo.Context) error { return handler(c.Response(), c.Request()) }, s.guard(route))
}

// SetNow gives a service that has not begun to serve another clock for the dates of numbers.
func (s *Server) SetNow(now func() time.Time) { s.now = now }
