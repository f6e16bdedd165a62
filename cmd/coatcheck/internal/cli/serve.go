package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os/signal"
	"runtime"
	_ "time/tzdata" // for /incr, where the machine has no time zones

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/tracing"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/server"
)

func (p *program) serveCommand() *cobra.Command {
	command := &cobra.Command{
		Example: "  coatcheck serve --redis redis://localhost:6379",
		Use:     "serve", Short: "Run the service", Args: noArgs,
		Long: "Run the service. Without arguments it uses the embedded store and listens on 127.0.0.1:8080.",
	}
	l := config.BindService(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		if err := p.complete(c, l); err != nil {
			return err
		}
		defer runtime.KeepAlive(spareHeap())
		return p.serve(c.Context(), l)
	}
	return command
}

func (p *program) serve(ctx context.Context, l *config.Sources) (err error) {
	hangups := catchHangups()
	defer signal.Stop(hangups)
	c := &l.Service
	log, level := p.levelled(c)
	redisstore.LogTo(log)
	traces, err := p.openTraces(ctx, c, tracing.Config{Service: "coatcheck", Logger: log,
		Known: func(ctx context.Context) bool { return access.From(ctx).Principal != "" }})
	if err != nil {
		return err
	}
	defer endTraces(ctx, traces, log)
	measures := metrics.NewService(version().Version)
	store, err := openStore(ctx, c, log, append(traces.Observers(), measures.Observer())...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	book, err := openAccess(ctx, c, store, log)
	if err != nil {
		return err
	}
	defer book.Close()
	listener, secure, err := openListener(c, log)
	if err != nil {
		return err
	}
	defer secure.Close()
	principal, segments, err := openSources(ctx, c, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, segments.close()) }()
	service := server.New(opened{store, log, measures, traces, book, secure, segments, principal}.settings(c))
	admin, err := openAdmin(c, service.Admin(), log)
	if err == nil {
		err = p.banner(ctx, c, store, servedAt{listener.Addr(), admin.url()}, log)
	}
	if err != nil {
		return errors.Join(err, listener.Close(), service.Close(ctx), admin.close())
	}
	defer func() { err = errors.Join(err, admin.close()) }()
	defer onHangup(ctx, hangups, reloadService(l, log, changeable{level, book, secure, service}).Reload)()
	err = service.Serve(ctx, listener)
	log.Info("stopped")
	return err
}

// openSources opens where principals and ids of segments come from.
func openSources(ctx context.Context, c *config.Service, log *slog.Logger) (func(*http.Request) (string, error), openedSegments, error) {
	principal, err := openPrincipal(ctx, c, log)
	if err != nil {
		return nil, openedSegments{}, err
	}
	segments, err := openSegments(c)
	return principal, segments, err
}

// opened are the parts that a service has opened at its start.
type opened struct {
	store    *redisstore.Store
	log      *slog.Logger
	measures *metrics.Service
	traces   *tracing.Traces
	book     *access.Policy
	secure   *config.Certificates
	segments openedSegments
	// who is asking, where access is not controlled
	principal func(*http.Request) (string, error)
}

// settings are the service's settings, with the opened parts.
func (o opened) settings(c *config.Service) server.Config {
	s := c.Server
	s.Store, s.Logger, s.Metrics, s.Tracer, s.Debug = o.store, o.log, o.measures, o.traces.Tracer(), profiles(c.Profiles)
	s.SegmentSource, s.SegmentTags = o.segments.source, o.segments.tags
	s.Access, s.TLS, s.AllowedHosts = o.book, o.secure.Settings(), c.Hosts()
	s.Principal, s.OneCaller = o.principal, c.OneCaller()
	s.MaxConnections, s.StopTimeout = connections(c, o.log), stopWithin(c, o.log)
	return s
}

func openStore(ctx context.Context, c *config.Service, log *slog.Logger, observers ...observe.Observer) (*redisstore.Store, error) {
	config := c.Store
	config.Logger, config.Observers = log, observers
	if err := checkFit(ctx, config); err != nil {
		return nil, err
	}
	return redisstore.OpenConfig(ctx, config)
}

// checkFit refuses a Redis on which a store cannot work: a call would fail in its middle, or
// always. It does not judge one that does not answer: the banner and /readyz report that.
func checkFit(ctx context.Context, config redisstore.Config) error {
	if err := redisprobe.Unfit(ctx, config); err != nil {
		return usageError{err}
	}
	return nil
}

// logger writes to standard error, so that standard output is the banner's.
func (p *program) logger(c *config.Service) *slog.Logger {
	log, _ := p.levelled(c)
	return log
}

// levelled is such a logger, and its settings, which can change.
func (p *program) levelled(c *config.Service) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(c.LogLevel)
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" || p.json {
		options.ReplaceAttr = wireTime
		return slog.New(slog.NewJSONHandler(p.stderr, options)), level
	}
	return slog.New(slog.NewTextHandler(p.stderr, options)), level
}

// wireTime writes a time in the log as answers have it.
func wireTime(_ []string, attr slog.Attr) slog.Attr {
	if attr.Value.Kind() == slog.KindTime {
		attr.Value = slog.StringValue(attr.Value.Time().UTC().Format(api.TimeFormat))
	}
	return attr
}

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
