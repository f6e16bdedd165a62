package gateway

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/internal/requestlog"
)

// A traced request has a span, named by its route's pattern; within it, on guarded routes, one of
// the guard; and one of the request to the upstream, which gets it in the traceparent header. No
// span holds a path, a query, a header, an address or a name.

// outcomeKey is the attribute for a request's outcome, in the words of the metrics.
const outcomeKey = attribute.Key("coatcheck.outcome")

// trace gives a request its span. Its name is completed when the route is known.
func (g *Gateway) trace(r *http.Request, x *exchange) *http.Request {
	if g.config.Tracer == nil {
		return r
	}
	ctx, span := requestlog.StartSpan(requestlog.TraceOf(r), g.config.Tracer, r)
	x.span = span
	return r.WithContext(ctx)
}

func (x *exchange) endTrace(r *http.Request, status int) {
	if x.span == nil {
		return
	}
	if x.route != nil {
		pattern := x.route.Name
		if method, path, found := strings.Cut(pattern, " "); found && method == r.Method {
			pattern = path
		}
		requestlog.SpanRoute(x.span, r, pattern)
	}
	x.span.SetAttributes(outcomeKey.String(string(x.outcome)))
	requestlog.SpanStatus(x.span, status)
	if status >= http.StatusInternalServerError {
		x.span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
	}
	x.span.End()
}

// guarding serves a guarded request, with a span of the guard.
func (g *Gateway) guarding(w http.ResponseWriter, r *http.Request, x *exchange) {
	if g.config.Tracer == nil {
		x.route.handler.ServeHTTP(w, r)
		return
	}
	ctx, span := g.config.Tracer.Start(r.Context(), "idempotency.Guard")
	defer span.End()
	x.route.handler.ServeHTTP(w, r.WithContext(ctx))
}

// traced gives each request that a transport carries a span, and tells the upstream of it.
func (g *Gateway) traced(transport http.RoundTripper) http.RoundTripper {
	if g.config.Tracer == nil {
		return transport
	}
	return tracedTransport{transport, g.config.Tracer}
}

type tracedTransport struct {
	http.RoundTripper

	tracer trace.Tracer
}

// RoundTrip implements [http.RoundTripper]. The span ends with the body, or with an upgrade.
func (t tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	name, is := requestlog.SpanMethod(r)
	ctx, span := t.tracer.Start(r.Context(), name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(is, semconv.URLScheme(r.URL.Scheme)))
	r = r.WithContext(ctx)
	r.Header = r.Header.Clone() // a transport must leave a request as it is
	requestlog.SendTrace(ctx, r.Header)
	answer, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeOther) // the error's text can quote the upstream
		span.SetStatus(codes.Error, "")
		span.End()
		return answer, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(answer.StatusCode))
	if answer.StatusCode >= http.StatusBadRequest {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(answer.StatusCode)))
		span.SetStatus(codes.Error, "")
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		span.End()
		return answer, nil
	}
	answer.Body = &tracedBody{ReadCloser: answer.Body, span: span}
	return answer, nil
}

// tracedBody ends its span once, when it ends or is closed.
type tracedBody struct {
	io.ReadCloser

	span trace.Span
	once sync.Once
}

func (b *tracedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err != nil {
		b.end(err)
	}
	return n, err
}

func (b *tracedBody) Close() error {
	err := b.ReadCloser.Close()
	b.end(nil)
	return err
}

func (b *tracedBody) end(err error) {
	b.once.Do(func() {
		if err != nil && !errors.Is(err, io.EOF) {
			b.span.SetAttributes(semconv.ErrorTypeOther)
			b.span.SetStatus(codes.Error, "")
		}
		b.span.End()
	})
}
