package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/coatcheck/coatcheck/internal/tracing"
)

// openTraces starts the sending of traces, of which into has the service's name and whose decisions
// it follows; nil if they are not wanted.
func (p *program) openTraces(ctx context.Context, c *config, into tracing.Config) (*tracing.Traces, error) {
	if c.traceEndpoint == "" && !tracing.Wanted(p.getenv) {
		return nil, nil //nolint:nilnil // nil makes no traces
	}
	into.Endpoint, into.Sample, into.Version = c.traceEndpoint, c.traceSample, version().Version
	return tracing.Open(ctx, into)
}

// endTraces sends what was not sent yet. That some were lost is no failure of the service.
func endTraces(ctx context.Context, traces *tracing.Traces, log *slog.Logger) {
	if err := traces.Close(ctx); err != nil {
		log.Warn("the last traces could not be sent", "error", err)
	}
}

// collector is the URL of one; empty = none.
func collector(name, help string, into *string) *setting {
	return &setting{name: name, unit: "URL", help: help, parse: func(s string) error {
		*into = s
		if s == "" {
			return nil
		}
		return tracing.CheckEndpoint(s)
	}}
}

// part is a number from 0 to 1; empty = unsaid.
func part(name, help string, into **float64) *setting {
	return &setting{name: name, unit: "0 to 1", help: help, parse: func(s string) error {
		*into = nil
		if s == "" {
			return nil
		}
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || !(n >= 0 && n <= 1) { // NaN is neither
			return fmt.Errorf("%q is not a number from 0 to 1, such as 0.1", s)
		}
		*into = &n
		return nil
	}}
}
