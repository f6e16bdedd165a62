package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/requestlog"
)

// A traced request has a span, named by its route's template. Within it is a span of the handler's
// call to a domain, its decoding and encoding included, and within that one for each call to the
// store, which package tracing makes. No span holds a path, a query, a header, a name or an
// address: any of them can be secret or private.

// untraced are the routes that machines poll, with useless traces, and the endless stream.
var untraced = map[string]bool{"/livez": true, "/readyz": true, "/metrics": true, "/favicon.ico": true, "/events": true}

// problemKey is the attribute for the problem that a request was refused with.
const problemKey = attribute.Key("coatcheck.problem")

// traced gives a request its span. It is outside of the middleware that turns errors into answers,
// so that it sees the status.
func (s *Server) traced(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if untraced[c.Path()] {
			return next(c)
		}
		request := c.Request()
		ctx := requestlog.TraceOf(request)
		begin := ctx
		// whether it is kept here may depend on the caller
		if trace.SpanContextFromContext(ctx).IsSampled() {
			begin = access.With(ctx, s.admission.recognized(request))
		}
		_, span := requestlog.StartSpan(begin, s.config.Tracer, request)
		defer span.End()
		if route := s.pattern(c); route != "" {
			requestlog.SpanRoute(span, request, route)
		}
		c.SetRequest(request.WithContext(trace.ContextWithSpan(ctx, span)))
		err := next(c)
		requestlog.SpanStatus(span, c.Response().Status)
		return err
	}
}

// inDomain gives a handler's call to a domain its span.
func (s *Server) inDomain(call string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			outer := c.Request()
			ctx, span := s.config.Tracer.Start(outer.Context(), call)
			defer span.End()
			c.SetRequest(outer.WithContext(ctx))
			err := next(c)
			c.SetRequest(outer)
			if err != nil {
				noteProblem(span, problemOf(err))
			}
			return err
		}
	}
}

// noteProblem adds to a span the problem that a request was refused with, but none of its texts,
// which can quote the client.
func noteProblem(span trace.Span, problem api.Problem) {
	span.SetAttributes(problemKey.String(string(problem.Code)))
	if problem.Status >= http.StatusInternalServerError {
		span.SetAttributes(semconv.ErrorTypeKey.String(string(problem.Code)))
		span.SetStatus(codes.Error, "")
	}
}
