package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
)

// chained wraps the handlers of all routes in the common middleware. Echo would build the chain
// anew for each request.
func (s *Server) chained() echo.MiddlewareFunc {
	whole := chain(func(c echo.Context) error { return c.Handler()(c) }, s.middlewares())
	return func(echo.HandlerFunc) echo.HandlerFunc { return whole }
}

// chain puts middleware around a handler, the first outermost.
func chain(handler echo.HandlerFunc, around []echo.MiddlewareFunc) echo.HandlerFunc {
	for _, one := range slices.Backward(around) {
		handler = one(handler)
	}
	return handler
}

// middlewares are the middleware of every request, outermost first.
func (s *Server) middlewares() []echo.MiddlewareFunc {
	around := []echo.MiddlewareFunc{s.begun}
	if s.config.Tracer != nil {
		around = append(around, s.traced)
	}
	return append(around,
		s.counted,
		s.accessLog(),
		middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: s.logPanic, DisablePrintStack: false}),
		s.journal.refusals,
		plainTarget,
		s.ownName,
		s.crossOrigin(),
		s.ownPages,
		plainBody,
		s.limitBody,
		wholePath,
	)
}

// plainTarget refuses a request line whose target has none of the forms that a server takes.
func plainTarget(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !frontdoor.WellFormedTarget(c.Request()) {
			return &fault{api.InvalidRequest, "target",
				"the request line: its target has to be a path, or an http or https URL with a host"}
		}
		return next(c)
	}
}

// plainBody refuses a compressed body: bodies are read as they come, since their inflated size is
// not known beforehand.
func plainBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		for _, coding := range c.Request().Header.Values(echo.HeaderContentEncoding) {
			if c.Request().ContentLength != 0 && !strings.EqualFold(strings.TrimSpace(coding), "identity") {
				c.Response().Header().Set(echo.HeaderAcceptEncoding, "identity")
				return &fault{api.UnsupportedEncoding, echo.HeaderContentEncoding,
					"a body belongs here as it is: send it without compression"}
			}
		}
		return next(c)
	}
}

// limitBody refuses a body over the limit, with or without a Content-Length. Echo's own BodyLimit
// hides from net/http that a body was left unread: if a later handler closes the body, the
// connection stays open, and the rest of the body is read as the next request.
func (s *Server) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		request := c.Request()
		if request.Body == http.NoBody {
			return next(c)
		}
		if request.ContentLength > s.config.MaxBody {
			return &http.MaxBytesError{Limit: s.config.MaxBody}
		}
		request.Body = http.MaxBytesReader(c.Response().Writer, request.Body, s.config.MaxBody)
		return next(c)
	}
}

// wholePath makes what Echo matched beyond the template not found: its last parameter takes slashes
// as well.
func wholePath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if template := c.Path(); template != "" && strings.Count(template, "/") != strings.Count(frontdoor.RawPath(c.Request().URL), "/") {
			c.Response().Header().Del(echo.HeaderAllow)
			return echo.ErrNotFound
		}
		return next(c)
	}
}

// begun gives every response an X-Request-Id, the client's if it sent a sane one, and the headers
// for browsers; and gives the request its timeout, unless it is a stream.
func (s *Server) begun(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		request := c.Request()
		id := requestlog.IDOf(request)
		c.Response().Header()[echo.HeaderXRequestID] = []string{id}
		frontdoor.Harden(c.Response(), request)
		ctx := requestlog.With(request.Context(), id)
		if !isStream(c) {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.config.RequestTimeout)
			defer cancel()
		}
		c.SetRequest(request.WithContext(ctx))
		return next(c)
	}
}

// accessLog writes one line a request, with the route's template instead of the path: a path can
// hold a token.
func (s *Server) accessLog() echo.MiddlewareFunc {
	return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		// the error becomes a problem before the line is written, so that the status is the
		// client's
		HandleError: true,
		LogMethod:   true, LogStatus: true, LogLatency: true, LogResponseSize: true,
		LogValuesFunc: func(c echo.Context, v middleware.RequestLoggerValues) error {
			if !requestlog.Wants(s.config.AccessLog, c.Path()) || !s.log.Enabled(c.Request().Context(), requestlog.LevelOf(v.Status)) {
				return nil
			}
			line := []slog.Attr{
				slog.String("method", requestlog.Method(v.Method)), slog.String("route", s.pattern(c)), slog.Int("status", v.Status),
				slog.Int64("bytes", v.ResponseSize), slog.Duration("duration", v.Latency), slog.String("address", c.RealIP()),
			}
			who := caller(c)
			if who.Principal != "" {
				line = append(line, slog.String("principal", who.Principal))
			}
			if who.KeyID != "" {
				line = append(line, slog.String("key_id", who.KeyID))
			}
			line = append(line, requestlog.Refusal(c.Request().Context())...)
			s.log.LogAttrs(c.Request().Context(), requestlog.LevelOf(v.Status), "request", line...)
			return nil
		},
	})
}

// errPanic stands for any panic of a handler: it is an internal error, even if its value would be
// another problem.
var errPanic = errors.New("a handler panicked")

func (s *Server) logPanic(c echo.Context, err error, stack []byte) error {
	s.log.ErrorContext(c.Request().Context(), "panic in a handler", "error", fmt.Sprint(err), "route", c.Path(), "stack", string(stack))
	return errPanic
}
