package requestlog

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// traceContext is the form in which traces come in and go out:
// https://www.w3.org/TR/trace-context/.
var traceContext propagation.TraceContext

// TraceOf returns a request's context with the trace that its client has begun, if it has one.
func TraceOf(r *http.Request) context.Context {
	return traceContext.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
}

// SendTrace writes the trace of a context into the header of a request to another service.
func SendTrace(ctx context.Context, header http.Header) {
	traceContext.Inject(ctx, propagation.HeaderCarrier(header))
}

// SpanMethod names a request's method as the semantic conventions do.
func SpanMethod(r *http.Request) (name string, is attribute.KeyValue) {
	if Method(r.Method) != r.Method {
		return "HTTP", semconv.HTTPRequestMethodOther
	}
	return r.Method, semconv.HTTPRequestMethodKey.String(r.Method)
}

// StartSpan begins the span of a request that has come, named by its method until the route is
// known. The span holds no path, query, header or address: any of them can be a secret.
//
//nolint:ireturn // the span is the tracer's
func StartSpan(ctx context.Context, tracer trace.Tracer, r *http.Request) (context.Context, trace.Span) {
	name, is := SpanMethod(r)
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	_, version, _ := strings.Cut(r.Proto, "/")
	return tracer.Start(ctx, name, //nolint:spancheck // its caller ends it
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(is, semconv.URLScheme(scheme),
			semconv.NetworkProtocolVersion(version)))
}

// SpanRoute sets the route of a request's span.
func SpanRoute(span trace.Span, r *http.Request, route string) {
	name, _ := SpanMethod(r)
	span.SetName(name + " " + route)
	span.SetAttributes(semconv.HTTPRoute(route))
}

// SpanStatus sets the answer's status of a request's span; 0 = no answer.
func SpanStatus(span trace.Span, status int) {
	if status > 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	if status == 0 || status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}
