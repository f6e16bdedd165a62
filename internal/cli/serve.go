package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/internal/tracing"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

func (p *program) serveCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "serve", Short: "Run the service", Args: noArgs,
		Long: "Run the service. Without arguments it uses the embedded store and listens on 127.0.0.1:8080.",
	}
	l := bindFlags(command.Flags())
	command.RunE = func(c *cobra.Command, _ []string) error {
		if err := l.complete(c, p); err != nil {
			return err
		}
		defer runtime.KeepAlive(spareHeap())
		return p.serve(c.Context(), l)
	}
	return command
}

// serve runs the service until the context ends.
func (p *program) serve(ctx context.Context, l *layers) (err error) {
	hangups := catchHangups()
	defer signal.Stop(hangups)
	c := &l.config
	log, level := p.levelled(c)
	redisstore.LogTo(log)
	traces, err := p.openTraces(ctx, c, tracing.Config{Service: "coatcheck", Logger: log, Known: func(ctx context.Context) bool { return access.From(ctx).Principal != "" }})
	if err != nil {
		return err
	}
	defer endTraces(ctx, traces, log)
	measures := metrics.NewService(version().Version)
	store, err := c.openStore(ctx, log, append(traces.Observers(), measures)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	book, err := c.openAccess(ctx, store, log)
	if err != nil {
		return err
	}
	defer book.Close()
	listener, secure, err := c.openListener(log)
	if err != nil {
		return err
	}
	defer secure.Close()
	segments, err := c.openSegments(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, segments.close()) }()
	service := server.New(server.Config{
		Store: store, Logger: log, AccessLog: c.accessLog, AuditLog: c.auditLog, Metrics: measures, Tracer: traces.Tracer(), Debug: profiles(), Dev: c.dev, PaymentDelay: c.paymentDelay, PaymentLease: c.paymentLease,
		Counters: c.counters(), Locks: c.locks(), LockWaits: int(c.lockWaits),
		Segments: c.segments(), SegmentSource: segments.source, SegmentTags: segments.tags, SegmentStep: c.segmentStep, KnownSegments: !c.segmentCreate,
		OpaqueKeys: c.opaqueKeys, Leaf: c.leaf, TinyidTokens: c.tinyidTokens,
		Workers: c.workers(), IDPool: c.idPool, StampPools: c.stampPools, ReadyWhen: server.ReadyWhen(c.readyWhen), Identity: c.leasesAs(),
		Access: book, TLS: secure.settings(), CORSOrigins: c.corsOrigins, AllowedHosts: c.hosts(),
		Console:   server.ConsoleConfig{Mode: server.ConsoleMode(c.console), Durability: durability(c, store)},
		Principal: idempotency.HeaderPrincipal(c.principalHeaders...), TokenKeys: c.tokenKeys, AnswerKeys: c.answerKeys, Quota: c.quota(),
		IdleTimeout: c.idleTimeout, MaxConnections: c.connections(log), MaxPerAddress: int(c.maxPerAddress), MaxBytes: c.maxBytesInFlight,
		MaxBody: c.maxBody, RequestTimeout: c.requestTimeout, DrainDelay: c.drainDelay, StopTimeout: c.stopWithin(log),
	})
	admin, err := c.openAdmin(service.Admin(), log)
	if err == nil {
		err = p.banner(ctx, c, store, servedAt{listener.Addr(), admin.url()}, log)
	}
	if err != nil {
		return errors.Join(err, listener.Close(), service.Close(ctx), admin.close())
	}
	defer func() { err = errors.Join(err, admin.close()) }()
	defer onHangup(ctx, hangups, l.reloading(log, changeable{level, book, secure, service}).reload)()
	err = service.Serve(ctx, listener)
	log.Info("stopped")
	return err
}

// openStore opens the store that the configuration names.
func (c *config) openStore(ctx context.Context, log *slog.Logger, observers ...observe.Observer) (*redisstore.Store, error) {
	config := c.store()
	config.Logger, config.Observers = log, observers
	store, err := redisstore.OpenConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := checkRights(ctx, store); err != nil {
		return nil, errors.Join(configError(err), store.Close())
	}
	return store, nil
}

// checkRights refuses a store whose user may not run all that is needed: a call would fail in its
// middle. A store that does not answer now is not judged: the banner and /readyz tell of it.
func checkRights(ctx context.Context, store *redisstore.Store) error {
	denied, _ := redisprobe.Denied(ctx, store)
	if len(denied) == 0 {
		return nil
	}
	return fmt.Errorf("redis: the user may not run %s under the prefix: ACL SETUSER <user> +%s, at each server; coatcheck doctor --redis looks closer",
		strings.Join(denied, ", "), strings.ToLower(strings.Join(denied, " +")))
}

// counters is the part of the configuration that package counter takes.
func (c *config) counters() counter.Config {
	return counter.Config{AfterLoss: counter.AfterLoss(c.counterAfterLoss), Margin: c.counterMargin, HoldOff: c.counterHoldOff}
}

// locks is the part of the configuration that package lock takes.
func (c *config) locks() lock.Config {
	return lock.Config{AfterLoss: lock.AfterLoss(c.lockAfterLoss), LongestTTL: c.lockLongestTTL, Skew: c.clockSkew}
}

// workers is the part of the configuration that package workerlease takes.
func (c *config) workers() workerlease.Config {
	return workerlease.Config{NewPools: c.unknownPools(), Skew: c.clockSkew, Cooldown: c.workerCooldown, LongestTTL: c.workerLongest, Pools: c.pools}
}

// unknownPools is what a worker-id pool is that the store knows nothing of.
func (c *config) unknownPools() workerlease.NewPools {
	switch {
	case c.newPools != "":
		return workerlease.NewPools(c.newPools)
	case c.dev || c.redis == "" || c.redis == "embedded:":
		return workerlease.Trust
	}
	return workerlease.Wait
}

// quota is what one principal may have in the store.
func (c *config) quota() idempotency.Quota {
	return idempotency.Quota{Operations: int(c.quotaOperations), Bytes: c.quotaBytes}
}

var unnamed = regexp.MustCompile(`[^A-Za-z0-9._:~@-]+`)

// leasesAs is the identity under which the service leases worker ids: the host's name without what
// no name has, unless another was set.
func (c *config) leasesAs() string {
	if c.identity != "" {
		return c.identity
	}
	host, err := os.Hostname()
	if err != nil {
		return "" // it then leases without an identity
	}
	return nameOf(host)
}

// nameOf makes a name as the HTTP interface takes it of a text.
func nameOf(text string) string {
	text = unnamed.ReplaceAllString(text, "-")
	return text[:min(len(text), 200)]
}

// logger writes to standard error, so that standard output is the banner's.
func (p *program) logger(c *config) *slog.Logger {
	log, _ := p.levelled(c)
	return log
}

// levelled is such a logger, and what it holds, which can change.
func (p *program) levelled(c *config) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	level.Set(c.logLevel)
	options := &slog.HandlerOptions{Level: level}
	if c.logFormat == "json" || p.json {
		return slog.New(slog.NewJSONHandler(p.stderr, options)), level
	}
	return slog.New(slog.NewTextHandler(p.stderr, options)), level
}
