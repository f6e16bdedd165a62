package requestlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestLinesOfARequestCarryItsIDAndItsTrace(t *testing.T) {
	var out bytes.Buffer
	plain := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
	log := requestlog.Logger(requestlog.Logger(plain)) // twice adds nothing twice
	span := func(flags trace.TraceFlags) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags})
	}
	request := requestlog.With(t.Context(), "r-1")
	for _, row := range []struct {
		name string
		ctx  context.Context
		log  *slog.Logger
		want map[string]string
	}{
		{"no request", t.Context(), log, nil},
		{"a request", request, log, map[string]string{"request_id": "r-1"}},
		{"a trace that is not kept", trace.ContextWithSpanContext(request, span(0)), log, map[string]string{"request_id": "r-1"}},
		{
			"a trace that is kept", trace.ContextWithSpanContext(request, span(trace.FlagsSampled)), log,
			map[string]string{"request_id": "r-1", "trace_id": "01000000000000000000000000000000", "span_id": "0200000000000000"},
		},
		{"a logger made of it", request, log.With("of", "it"), map[string]string{"request_id": "r-1", "of": "it"}},
		{"a logger that is not ours", request, plain, nil},
	} {
		out.Reset()
		row.log.InfoContext(row.ctx, "said")
		want := map[string]string{"msg": "said"}
		maps.Copy(want, row.want)
		var got map[string]string
		expect.Error(t, row.name+": reading "+out.String(), json.Unmarshal(out.Bytes(), &got), nil)
		expect.Equal(t, "the line of "+row.name, got, want)
	}
	expect.Equal(t, "the id of no request", requestlog.ID(t.Context()), "")
}
