package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// pipelineCalls is how many calls shared a call's round trip, itself among them.
const pipelineCalls = attribute.Key("coatcheck.pipeline.calls")

// calls makes a span of each call to the store for a request. Calls without one have none.
type calls struct {
	tracer trace.Tracer
}

type callKey struct{}

func (c calls) started(ctx context.Context, op string) context.Context {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx
	}
	about := []attribute.KeyValue{semconv.DBSystemNameRedis, semconv.DBOperationName("EVALSHA"), semconv.DBStoredProcedureName(op)}
	if op == observe.OpIncrBy {
		about = []attribute.KeyValue{semconv.DBSystemNameRedis, semconv.DBOperationName("INCRBY")}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(about...)}
	ctx, span := c.tracer.Start(ctx, "redis "+op, options...) //nolint:spancheck // ended does it
	return context.WithValue(ctx, callKey{}, span)            //nolint:spancheck // as above
}

func (c calls) ended(ctx context.Context, call observe.Call) {
	span, ok := ctx.Value(callKey{}).(trace.Span)
	if !ok {
		return
	}
	if call.Together > 0 {
		span.SetAttributes(pipelineCalls.Int(call.Together))
	}
	if call.Word != "" {
		span.SetAttributes(attribute.String("coatcheck.outcome", call.Word))
	}
	if class := classOf(call.Err); class != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// classOf names the class of an error, whose text may be too much for a trace; "" is no failure.
func classOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, redisstore.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, redisstore.ErrUnknownOutcome):
		return "unknown-outcome"
	case errors.Is(err, redisstore.ErrRefused), errors.Is(err, redisstore.ErrLost):
		return ""
	}
	return "_OTHER"
}
