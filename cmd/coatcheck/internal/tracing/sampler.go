package tracing

import (
	"context"
	"crypto/rand"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler keeps a part of the traces. A trace that is not kept where it began is not kept here. One
// that is kept there is kept here if its caller is known. From any other caller it counts as a
// trace that begins here: a stranger's flag keeps no more traces.
type sampler struct {
	part  float64
	begun sdk.Sampler // of traces that begin here
	known func(context.Context) bool
}

func newSampler(part float64, known func(context.Context) bool) sampler {
	if known == nil {
		known = func(context.Context) bool { return false }
	}
	return sampler{part, sdk.TraceIDRatioBased(part), known}
}

func (s sampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	switch {
	case !parent.IsValid():
		return s.begun.ShouldSample(p)
	case !parent.IsSampled() || s.part == 0:
		return sdk.NeverSample().ShouldSample(p)
	case !parent.IsRemote() || s.known(p.ParentContext):
		return sdk.AlwaysSample().ShouldSample(p)
	}
	// The ratio is decided on the trace's id, which the caller chose: a new one replaces it.
	_, _ = rand.Read(p.TraceID[:]) // it never fails
	return s.begun.ShouldSample(p)
}

func (s sampler) Description() string { return "KnownParentElse" + s.begun.Description() }
