// Package requestlog puts the id of a request, and of its trace where there is one, on every line
// of the log that has the request's context, and has the parts of its own line.
package requestlog

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

type requestKey struct{}

// request is a context's part of a request. Only the goroutine that serves it writes it.
type request struct {
	id      string
	refused []slog.Attr
}

// With returns a context that carries a request's id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{id: id})
}

func of(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// ID is the request's id that a context carries; "" if it carries none.
func ID(ctx context.Context) string {
	if r := of(ctx); r != nil {
		return r.id
	}
	return ""
}

// Refuse keeps, for the request's own line, the code of the problem that it is refused with, and
// the operation that the problem names, if any. Only the request's own goroutine calls it.
func Refuse(ctx context.Context, code, operation string) {
	r := of(ctx)
	if r == nil {
		return
	}
	r.refused = []slog.Attr{slog.String("code", code)}
	if operation != "" {
		r.refused = append(r.refused, slog.String("operation", operation))
	}
}

// Refusal is what Refuse kept; none if the request was not refused.
func Refusal(ctx context.Context) []slog.Attr {
	if r := of(ctx); r != nil {
		return r.refused
	}
	return nil
}

// Logger returns a logger that adds to each line what the line's context carries: request_id, and
// trace_id and span_id of a trace that is kept. Lines that are written without a context, or with
// one of no request, stay as they are. A logger that does so already gets nothing twice.
func Logger(log *slog.Logger) *slog.Logger {
	if with, done := log.Handler().(handler); done && with.isWithIDs {
		return log
	}
	return slog.New(handler{log.Handler(), true, withIDs})
}

func withIDs(ctx context.Context, line slog.Record) slog.Record {
	if id := ID(ctx); id != "" {
		line.AddAttrs(slog.String("request_id", id))
	}
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		line.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return line
}

// Nameless returns a logger without names that clients chose: the attributes tag, key and name.
func Nameless(log *slog.Logger) *slog.Logger {
	return slog.New(handler{log.Handler(), false, func(_ context.Context, full slog.Record) slog.Record {
		line := slog.NewRecord(full.Time, full.Level, full.Message, full.PC)
		full.Attrs(func(a slog.Attr) bool {
			if a.Key != "tag" && a.Key != "key" && a.Key != "name" {
				line.AddAttrs(a)
			}
			return true
		})
		return line
	}})
}

// handler changes each line. It is safe for concurrent use if the one after it is.
type handler struct {
	slog.Handler

	isWithIDs bool
	change    func(context.Context, slog.Record) slog.Record
}

func (h handler) Handle(ctx context.Context, line slog.Record) error {
	return h.Handler.Handle(ctx, h.change(ctx, line))
}

// WithAttrs keeps what is changed in the logger that is made of it; so does WithGroup.
func (h handler) WithAttrs(attributes []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attributes)
	return h
}

// WithGroup puts what is added into the group.
func (h handler) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}
