package tracing

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

type knownKey struct{}

func isKnown(ctx context.Context) bool { return ctx.Value(knownKey{}) != nil }

// kept is how many of a thousand traces a sampler keeps that begin with a parent. All have the same
// id, which a ratio on the id keeps: a stranger would choose it so.
func kept(ctx context.Context, t *testing.T, s sdk.Sampler, parent trace.SpanContext) (n int) {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=state")
	if err != nil {
		t.Fatalf("making a tracestate: %v", err)
	}
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent.WithTraceState(state))
	}
	for range 1000 {
		result := s.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: parent.TraceID(), Name: "x"})
		if result.Decision == sdk.RecordAndSample {
			n++
		}
		if parent.IsValid() {
			expect.MustEqual(t, "the tracestate that goes on", result.Tracestate.String(), "vendor=state")
		}
	}
	return n
}

func TestSamplerFollowsKnownCallersAndNoOthers(t *testing.T) {
	stranger, known := t.Context(), context.WithValue(t.Context(), knownKey{}, true)
	parent := func(flags trace.TraceFlags, remote bool) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags, Remote: remote})
	}
	for _, row := range []struct {
		name        string
		part        float64
		ctx         context.Context
		parent      trace.SpanContext
		least, most int
	}{
		{"a stranger's that is kept there", 0.1, stranger, parent(trace.FlagsSampled, true), 20, 250},
		{"a stranger's that is kept there, of all", 1, stranger, parent(trace.FlagsSampled, true), 1000, 1000},
		{"a stranger's that is kept there, of none", 0, stranger, parent(trace.FlagsSampled, true), 0, 0},
		{"a stranger's that is not kept there", 1, stranger, parent(0, true), 0, 0},
		{"a known caller's that is kept there", 0.1, known, parent(trace.FlagsSampled, true), 1000, 1000},
		{"a known caller's that is kept there, of none", 0, known, parent(trace.FlagsSampled, true), 0, 0},
		{"a known caller's that is not kept there", 1, known, parent(0, true), 0, 0},
		{"a span of a trace that is kept here", 0.1, stranger, parent(trace.FlagsSampled, false), 1000, 1000},
		{"a span of a trace that is not", 1, stranger, parent(0, false), 0, 0},
		{"one that begins here, of all", 1, stranger, trace.SpanContext{}, 1000, 1000},
		{"one that begins here, of none", 0, known, trace.SpanContext{}, 0, 0},
	} {
		n := kept(row.ctx, t, newSampler(row.part, isKnown), row.parent)
		if n < row.least || n > row.most {
			t.Errorf("%s, sample %v: %d of 1000 are kept, want %d to %d", row.name, row.part, n, row.least, row.most)
		}
	}
	if n := kept(known, t, newSampler(0.1, nil), parent(trace.FlagsSampled, true)); n > 250 {
		t.Errorf("without known callers: %d of 1000 are kept, want 250 at most", n)
	}
}
