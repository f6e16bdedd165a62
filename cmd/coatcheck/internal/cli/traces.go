package cli

import (
	"context"
	"log/slog"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/tracing"
)

// openTraces starts the sending of traces; nil if they are not wanted. into has the service's name,
// and which callers' decisions it follows.
func (p *program) openTraces(ctx context.Context, c *config.Service, into tracing.Config) (*tracing.Traces, error) {
	if c.TraceEndpoint == "" && !tracing.Wanted(p.getenv) {
		return nil, nil //nolint:nilnil // nil makes no traces
	}
	into.Endpoint, into.Sample, into.Version = c.TraceEndpoint, c.TraceSample, version().Version
	return tracing.Open(ctx, into)
}

// endTraces sends the remaining spans. Lost ones are no failure of the service.
func endTraces(ctx context.Context, traces *tracing.Traces, log *slog.Logger) {
	if err := traces.Close(ctx); err != nil {
		log.Warn("the last traces could not be sent", "error", err)
	}
}
