package server

import (
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/wire"
)

// A request that is traced has a span of its own, named by its route's template; within it one of
// what its handler asks of a domain, its decoding and encoding included; and within that one for
// each call to the store, which package tracing makes. No span holds a path, a query, a header, a
// name or an address: any of them can be a secret, or somebody's business.

// domainCalls says what the handler of a route asks of which domain. Routes that are not here ask
// none, or nothing that takes time. Doors take any method.
var domainCalls = map[string]string{
	"POST /token":                 "idempotency.Issue",
	"GET /token/:token":           "idempotency.Status",
	"POST /token/:token/claim":    "idempotency.Claim",
	"POST /token/:token/complete": "idempotency.Complete",
	"POST /token/:token/extend":   "idempotency.Extend",
	"POST /token/:token/release":  "idempotency.Release",
	"GET /token":                  "idempotency.InDoubt",
	"POST /payments":              "idempotency.Guard",
	"GET /payments":               "ledger.List",

	"GET /operation/:operation":         "idempotency.Operation",
	"POST /operation/:operation/settle": "idempotency.Settle",

	"GET /incr/:key":           "counter.Add",
	"POST /incr/:key":          "counter.Add",
	"GET /counter/:key":        "counter.Get",
	"PUT /counter/:key":        "counter.Set",
	"DELETE /counter/:key":     "counter.Reset",
	"PUT /id/segment/:tag":     "counter.SetForward",
	"GET /counter":             "counter.List",
	"GET /id/snowflake":        "snowflake.Stamp",
	"GET /id/snowflake/:pool":  "snowflake.Stamp",
	"GET /id/segment/:tag":     "segment.NextN",
	"GET /id/decode/:id":       "workerlease.Ring", // where a pool is named
	"/api/segment/get/:key":    "segment.Next",
	"/api/snowflake/get/:key":  "snowflake.Stamp",
	"/db":                      "segment.Tags",
	"/tinyid/id/nextId":        "segment.NextN",
	"/tinyid/id/nextIdSimple":  "segment.NextN",
	"/tinyid/id/nextSegmentId": "segment.Take",

	"/tinyid/id/nextSegmentIdSimple": "segment.Take",

	"POST /worker/:pool":              "workerlease.Acquire",
	"PUT /worker/:pool":               "workerlease.Create",
	"GET /worker":                     "workerlease.List",
	"GET /worker/:pool":               "workerlease.Ring",
	"PUT /worker/:pool/:worker_id":    "workerlease.Renew",
	"DELETE /worker/:pool/:worker_id": "workerlease.Release",

	"POST /lock/:name":   "lock.Acquire",
	"PUT /lock/:name":    "lock.Renew",
	"DELETE /lock/:name": "lock.Release",
	"GET /lock/:name":    "lock.Get",
	"GET /lock":          "lock.List",
}

// domainCall is that of a route; "" if it has none.
func domainCall(method, path string) string {
	if call, ok := domainCalls[method+" "+path]; ok {
		return call
	}
	return domainCalls[path]
}

// untraced are the routes that machines ask again and again, of which a trace tells nothing, and
// the stream, which has no end.
var untraced = map[string]bool{"/livez": true, "/readyz": true, "/metrics": true, "/favicon.ico": true, "/events": true}

// traceContext is the form in which traces come in: https://www.w3.org/TR/trace-context/.
var traceContext propagation.TraceContext

// problemKey is which problem a request was refused with.
const problemKey = attribute.Key("coatcheck.problem")

// traced gives a request its span. It stands where the answer's status is known when it comes back.
func (s *Server) traced(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if untraced[c.Path()] {
			return next(c)
		}
		request := c.Request()
		ctx := traceContext.Extract(request.Context(), propagation.HeaderCarrier(request.Header))
		name, about := spanOf(request, s.pattern(c.Path()))
		begin := ctx
		// whether it is kept here may depend on the caller
		if trace.SpanContextFromContext(ctx).IsSampled() {
			begin = access.With(ctx, s.recognized(request))
		}
		_, span := s.config.Tracer.Start(begin, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(about...))
		defer span.End()
		c.SetRequest(request.WithContext(trace.ContextWithSpan(ctx, span)))
		err := next(c)
		status := c.Response().Status
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		return err
	}
}

// spanOf names the span of a request, and says what is known of it at its beginning.
func spanOf(request *http.Request, route string) (name string, about []attribute.KeyValue) {
	method, is := request.Method, semconv.HTTPRequestMethodKey.String(request.Method)
	if requestlog.Method(method) != method {
		method, is = "HTTP", semconv.HTTPRequestMethodOther
	}
	scheme := "http"
	if request.TLS != nil {
		scheme = "https"
	}
	_, version, _ := strings.Cut(request.Proto, "/")
	about = []attribute.KeyValue{is, semconv.URLScheme(scheme), semconv.NetworkProtocolVersion(version)}
	if route == "" {
		return method, about
	}
	return method + " " + route, append(about, semconv.HTTPRoute(route))
}

// inDomain gives what a handler asks of a domain its span.
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

// inHandler gives the handler behind a guard its span.
func (s *Server) inHandler(ctx context.Context) (context.Context, func()) {
	if s.config.Tracer == nil {
		return ctx, func() {}
	}
	ctx, span := s.config.Tracer.Start(ctx, "handler")
	return ctx, func() { span.End() }
}

// noteProblem puts on a span which problem a request was refused with. The problem's texts can hold
// what a client chose.
func noteProblem(span trace.Span, problem wire.Problem) {
	span.SetAttributes(problemKey.String(string(problem.Code)))
	if problem.Status >= http.StatusInternalServerError {
		span.SetAttributes(semconv.ErrorTypeKey.String(string(problem.Code)))
		span.SetStatus(codes.Error, "")
	}
}
