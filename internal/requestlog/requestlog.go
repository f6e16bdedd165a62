// Package requestlog puts the id of a request, and of its trace where there is one, on every line of the log that is written with the request's context.
package requestlog

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

type idKey struct{}

// With returns a context that carries a request's id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, idKey{}, id)
}

// ID is the request's id that a context carries; "" if it carries none.
func ID(ctx context.Context) string {
	id, _ := ctx.Value(idKey{}).(string)
	return id
}

// Logger returns a logger that adds to each line what the line's context carries: request_id, and trace_id and span_id of a trace that is kept. Lines that are written without
// a context, or with one of no request, stay as they are. A logger that does so already is returned as it is.
func Logger(log *slog.Logger) *slog.Logger {
	if _, done := log.Handler().(handler); done {
		return log
	}
	return slog.New(handler{log.Handler()})
}

// handler is safe for concurrent use if the one behind it is.
type handler struct{ slog.Handler }

// Handle adds the ids.
func (h handler) Handle(ctx context.Context, line slog.Record) error {
	if id := ID(ctx); id != "" {
		line.AddAttrs(slog.String("request_id", id))
	}
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		line.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs keeps the ids on the lines of the logger that is made of it; so does WithGroup.
func (h handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attributes)}
}

// WithGroup puts the ids into the group.
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
