// Package tracing sends traces to a collector by OTLP over HTTP. It is the only place that knows
// the OpenTelemetry SDK; a package that makes spans uses its interface package alone.
//
// A request is never slowed or failed by it: spans that have ended are put into a bounded queue,
// which a goroutine sends in batches. Spans that the collector does not take in time are dropped,
// which is logged, once a minute at most.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// scope is the name of the source of the spans.
const scope = "github.com/coatcheck/coatcheck"

// Config is the destination and the choice of traces. Beside it count the variables that
// OpenTelemetry specifies, from the process's environment: OTEL_EXPORTER_OTLP_*, OTEL_BSP_*,
// OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER. What is set here goes first.
type Config struct {
	Endpoint string // base URL of the collector, such as http://127.0.0.1:4318, after which comes /v1/traces; "" = as the environment says
	// the part of the traces that is kept, 0 to 1: see Known. nil = by the environment, else all
	Sample *float64
	// Known reports whether the caller of a request, by its context, has a say in whether to keep a
	// trace, unless Sample is 0. That of others counts as far as Sample allows. nil = no caller is.
	Known   func(context.Context) bool
	Service string // the name under which the traces appear, unless the environment has another
	Version string
	Logger  *slog.Logger // nil = no log
}

// Wanted reports whether the environment asks for traces.
func Wanted(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// CheckEndpoint returns the fault of a collector's URL. The error does not repeat it.
func CheckEndpoint(text string) error {
	at, err := url.Parse(text)
	switch {
	case err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "":
		return errors.New("the URL of an OTLP/HTTP collector is http://host:4318 or https://host, with or without a path in front of " +
			"/v1/traces")
	case at.User != nil || at.RawQuery != "" || at.Fragment != "":
		return errors.New("a user, a password, a query or a fragment does not belong into the URL of a collector: " +
			"OTEL_EXPORTER_OTLP_HEADERS says who sends")
	}
	return nil
}

// Traces sends spans. A nil *Traces makes none. It is safe for concurrent use.
type Traces struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	hurry    func() // ends the pauses between tries
	dropped  *complaints
}

// Open starts the sending, until Close. It makes no request: the log shows a dead collector.
func Open(ctx context.Context, config Config) (*Traces, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	dropped := &complaints{log: config.Logger, text: "traces cannot be sent, and are dropped"}
	faulty := otel.ErrorHandlerFunc(func(err error) { config.Logger.Warn("a variable of OpenTelemetry is faulty", "error", err) })
	otel.SetLogger(logr.New(sdkLog{logr.FromSlogHandler(config.Logger.Handler()).GetSink(), faulty, dropped}))
	otel.SetErrorHandler(faulty) // until the SDK has read them
	sender, err := newClient(config.Endpoint, config.Version, config.Logger)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	exporter, err := otlptrace.New(ctx, sender)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(config.Service), semconv.ServiceVersion(config.Version)), resource.WithFromEnv())
	if errors.Is(err, resource.ErrPartialResource) {
		err = errors.New("OTEL_RESOURCE_ATTRIBUTES is key1=value1,key2=value2 with percent-encoded values")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("traces: %w", err), exporter.Shutdown(ctx))
	}
	all := []sdk.TracerProviderOption{sdk.WithResource(about), sdk.WithBatcher(exporter)}
	if config.Sample != nil {
		all = append(all, sdk.WithSampler(newSampler(*config.Sample, config.Known)))
	}
	provider := sdk.NewTracerProvider(all...)
	otel.SetErrorHandler(dropped)
	tracer := provider.Tracer(scope, trace.WithInstrumentationVersion(config.Version), trace.WithSchemaURL(semconv.SchemaURL))
	return &Traces{provider, tracer, sync.OnceFunc(func() { close(sender.closing) }), dropped}, nil
}

// Tracer makes spans; nil if there are no traces.
func (t *Traces) Tracer() trace.Tracer { //nolint:ireturn // the tracer is the SDK's, which callers must not know
	if t == nil {
		return nil
	}
	return t.tracer
}

// Observers are what a store needs to be in the traces.
func (t *Traces) Observers() []observe.Observer {
	if t == nil {
		return nil
	}
	c := calls{t.tracer}
	return []observe.Observer{{CallStarted: c.started, CallEnded: c.ended}}
}

// closeWithin is how long the last spans may take to be sent.
const closeWithin = 3 * time.Second

// Close sends the remaining ended spans, for three seconds at most, and ends the sending.
func (t *Traces) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	t.hurry()
	defer t.dropped.end()
	return t.provider.Shutdown(ctx)
}

// complainEvery is how long the log is spared the next complaint.
const complainEvery = time.Minute

// complaints logs errors of one kind. It is safe for concurrent use.
type complaints struct {
	log  *slog.Logger
	text string // the line's message

	mu   sync.Mutex
	next time.Time
	more int   // that were not logged
	last error // of those
	full uint32
}

func (c *complaints) Handle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(c.next) {
		c.more++
		c.last = err
		return
	}
	c.log.Warn(c.text, "error", err, "not_told_before", c.more)
	c.next, c.more = now.Add(complainEvery), 0
}

// end logs what was not logged before.
func (c *complaints) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.more > 0 {
		c.log.Warn(c.text, "error", c.last, "not_told_before", c.more-1)
		c.more = 0
	}
}

// sdkLog is the SDK's own log. In lines of low levels, and nowhere else, stand variables that are
// no number, and how many spans found the queue full.
type sdkLog struct {
	logr.LogSink

	faulty  otel.ErrorHandler
	dropped *complaints
}

// The levels of such lines, and the beginning of the first.
const (
	informing, debugging = 4, 8
	noNumber             = "Got invalid value"
)

func (l sdkLog) Enabled(level int) bool {
	return level == informing || level == debugging || l.LogSink.Enabled(level)
}

func (l sdkLog) Info(level int, text string, about ...any) {
	if strings.HasPrefix(text, noNumber) && len(about) > 0 {
		l.faulty.Handle(fmt.Errorf("%v is a number", about[0]))
	}
	for i := 1; i < len(about); i += 2 {
		if n, ok := about[i].(uint32); ok && n > 0 && about[i-1] == "total_dropped" {
			l.dropped.fullQueue(n)
		}
	}
	if l.LogSink.Enabled(level) {
		l.LogSink.Info(level, text, about...)
	}
}

// fullQueue takes how many spans have found the queue full since the start.
func (c *complaints) fullQueue(n uint32) {
	c.mu.Lock()
	more := n - c.full
	c.full = n
	c.mu.Unlock()
	if more > 0 {
		c.Handle(fmt.Errorf("%d spans found the queue full: see OTEL_BSP_MAX_QUEUE_SIZE", more))
	}
}
