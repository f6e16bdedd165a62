package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/tracing"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
)

// gatewayConfig is what the gateway is set to. What it shares with the service is in config.
type gatewayConfig struct {
	*config

	admin          string
	upstream       gateway.Upstream
	upstreamGiven  bool
	routes         string
	trustForwarded bool
	preserveHost   bool
	tokenService   string
	upstreamIdle   time.Duration
	bodyTimeout    time.Duration
}

// gatewaySettings is the table of the gateway: the settings of its store, keys, log and stop are
// those of the service.
func gatewaySettings(c *gatewayConfig) []*setting {
	return append(in("Gateway",
		upstreamSetting("upstream", "the service to guard: http://host:port, https://host:port or unix:///path/to/socket", c),
		hot(text("routes", "", "file", "what to guard, and how: a YAML file, see docs/gateway.md. It is read again when it changes, and on SIGHUP", &c.routes)),
		address("listen", "127.0.0.1:8081", "where clients come in; port 0 takes a free one", &c.listen),
		address("admin", "127.0.0.1:8082", "where /livez, /readyz, /metrics and /debug/pprof/ are for the operator, not for clients; on loopback, unless --insecure is said", &c.admin),
		hot(hostNames("allowed-hosts", "names under which clients ask, beside every address and localhost, such as shop.example or *.example.com; * is every name; empty: every name at --listen, no other at --admin", &c.allowedHosts)),
		toggle("insecure", "lets other machines reach the admin side, which asks for no key", &c.insecure),
		headers("principal-headers", "Authorization", "who is asking, by these headers: keys and tokens of two principals never meet; none: everybody is the same", &c.principalHeaders),
		toggle("trust-forwarded", "keeps the X-Forwarded headers of requests: only behind a proxy that writes them itself", &c.trustForwarded),
		toggle("preserve-host", "sends the client's Host to the upstream instead of the upstream's own", &c.preserveHost),
		serviceURL("token-service", "where clients find /token/{token} and /operation/{operation}; empty: tokens at the gateway's own address, and no link to operations", &c.tokenService),
		span("upstream-idle", "1s", time.Millisecond, time.Hour, "how long an unused connection for guarded requests is kept: less than the upstream keeps it", &c.upstreamIdle),
		span("body-timeout", "30s", 100*time.Millisecond, time.Hour, "how long the body of a guarded request may take to arrive", &c.bodyTimeout),
	), shared(c.config)...)
}

// shared picks what the gateway has in common with the service.
func shared(c *config) []*setting {
	common := []string{"redis", "ack", "restarts", "data-dir", "max-keys", "max-bytes", "prefix", "store-timeout", "quota-operations", "quota-bytes", "token-keys", "answer-keys", "drain-delay", "stop-timeout", "idle-timeout", "max-connections", "max-connections-per-address", "max-bytes-in-flight", "trace-endpoint", "trace-sample", "access-log", "audit-log", "log-format", "log-level"}
	return slices.DeleteFunc(settings(c), func(s *setting) bool { return !slices.Contains(common, s.name) })
}

func upstreamSetting(name, help string, into *gatewayConfig) *setting {
	return &setting{name: name, unit: "URL", help: help, parse: func(s string) (err error) {
		if s != "" {
			into.upstream, err = gateway.ParseUpstream(s)
			into.upstreamGiven = err == nil
		}
		return err
	}}
}

// serviceURL is the URL of another service, without a slash at its end; empty = none.
func serviceURL(name, help string, into *string) *setting {
	return &setting{name: name, unit: "URL", help: help, parse: func(s string) error {
		target, err := url.Parse(s)
		if err != nil || s != "" && (target.Scheme != "http" && target.Scheme != "https" || target.Host == "" || target.User != nil || target.RawQuery != "") {
			return errors.New("not a URL such as https://tokens.example")
		}
		*into = strings.TrimRight(s, "/")
		return nil
	}}
}

func (p *program) gatewayCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "gateway --upstream URL --routes FILE", Short: "Run an idempotency proxy in front of a service in any language", Args: noArgs,
		Long: "Run a reverse proxy that makes routes of a service safe to ask for twice: one token or key, one request to the service, one answer.\n" +
			"The routes file says which ones; everything else passes as it is.",
		Example: "  coatcheck gateway --upstream http://127.0.0.1:3000 --routes routes.yaml --redis redis://localhost:6379",
	}
	l := &layers{}
	c := &gatewayConfig{config: &l.config}
	l.bind(command.Flags(), gatewaySettings(c))
	only := command.Flags().Bool("check", false, "check the routes file and the settings, and exit: 0 if they are in order, 2 if not")
	command.RunE = func(cc *cobra.Command, _ []string) error {
		loaded := l.load(cc.Flags(), p.getenv)
		routes, err := c.check(*only)
		if err := errors.Join(loaded, c.checkTogether(), err); err != nil {
			return configError(err)
		}
		if *only {
			return p.print(shownRoutes(routes), "The routes file is in order.\n\n"+routesTable(routes))
		}
		defer runtime.KeepAlive(spareHeap())
		return p.gateway(cc.Context(), l, c)
	}
	return command
}

// checkTogether finds settings that do not go together.
func (c *gatewayConfig) checkTogether() error {
	return errors.Join(c.store().Check(), c.checkAdmin("admin", c.admin))
}

// check reads the routes file, and finds what is missing to run; a mere check of the file needs no
// upstream.
func (c *gatewayConfig) check(only bool) (routes gateway.Routes, err error) {
	if !c.upstreamGiven && !only {
		err = errors.New("upstream: missing or wrong; the service to guard, such as --upstream http://127.0.0.1:3000")
	}
	if c.routes == "" {
		return nil, errors.Join(err, errors.New("routes: missing; a file such as --routes routes.yaml says what to guard"))
	}
	text, unread := os.ReadFile(c.routes)
	if unread != nil {
		return nil, errors.Join(err, fmt.Errorf("routes: %w", unread))
	}
	routes, faults := gateway.ParseRoutes(text)
	if faults != nil {
		faults = fmt.Errorf("%s: %s", c.routes, strings.ReplaceAll(faults.Error(), "\n", "\n"+c.routes+": "))
	}
	return routes, errors.Join(err, faults)
}

// gateway runs the gateway until the context ends.
func (p *program) gateway(ctx context.Context, l *layers, c *gatewayConfig) (err error) {
	hangups := catchHangups()
	defer signal.Stop(hangups)
	log, level := p.levelled(c.config)
	redisstore.LogTo(log)
	// net/http writes there what an upstream sends unasked, which may be anybody's secret
	slog.SetDefault(slog.New(slog.DiscardHandler))
	traces, err := p.openTraces(ctx, c.config, tracing.Config{Service: "coatcheck-gateway", Logger: log})
	if err != nil {
		return err
	}
	defer endTraces(ctx, traces, log)
	measures := metrics.NewStore(version().Version)
	store, err := c.openStore(ctx, log, append(traces.Observers(), measures)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	g, err := gateway.New(gateway.Config{
		Store: store, Upstream: c.upstream, RoutesFile: c.routes, Logger: log, AccessLog: c.accessLog, AuditLog: c.auditLog, Metrics: measures, Tracer: traces.Tracer(), Debug: profiles(),
		Principal: idempotency.HeaderPrincipal(c.principalHeaders...), TokenKeys: c.tokenKeys, AnswerKeys: c.answerKeys, Quota: c.quota(),
		AllowedHosts: c.allowedHosts, TrustForwarded: c.trustForwarded, PreserveHost: c.preserveHost, TokenService: c.tokenService,
		IdleTimeout: c.idleTimeout, MaxConnections: c.connections(log), MaxPerAddress: int(c.maxPerAddress), MaxBytes: c.maxBytesInFlight,
		UpstreamIdle: c.upstreamIdle, BodyTimeout: c.bodyTimeout, DrainDelay: c.drainDelay, StopTimeout: c.stopTimeout,
	})
	if err != nil {
		return configError(err)
	}
	warnAdmin(c.admin, log)
	clients, admin, err := c.listeners()
	if err != nil {
		return errors.Join(err, g.Close(ctx))
	}
	if err := p.gatewayBanner(ctx, c, gatewayAt{g, store, clients.Addr(), admin.Addr()}, log); err != nil {
		return errors.Join(err, clients.Close(), admin.Close(), g.Close(ctx))
	}
	defer onHangup(ctx, hangups, c.reloading(l, log, level, g).reload)()
	err = g.Serve(ctx, clients, admin)
	log.Info("stopped")
	return err
}

func (c *gatewayConfig) listeners() (clients, admin net.Listener, err error) {
	if clients, err = net.Listen("tcp", c.listen); err != nil {
		return nil, nil, fmt.Errorf("%w; choose another address with --listen, or --listen 127.0.0.1:0 for a free port", err)
	}
	if admin, err = net.Listen("tcp", c.admin); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w; choose another address with --admin, or --admin 127.0.0.1:0 for a free port", err), clients.Close())
	}
	return clients, admin, nil
}

// gatewayStarted is what the gateway tells when it is ready.
type gatewayStarted struct {
	started

	Upstream string       `json:"upstream"`
	Routes   []shownRoute `json:"routes"`
}

type shownRoute struct {
	Match  string `json:"match"`
	Accept string `json:"accept"`
	Policy string `json:"policy"`
}

func shownRoutes(routes gateway.Routes) (list []shownRoute) {
	for _, route := range routes {
		list = append(list, shownRoute{route.Name, string(route.Accept), string(route.Policy)})
	}
	return list
}

// gatewayAt is a gateway that is about to run, and where.
type gatewayAt struct {
	gateway        *gateway.Gateway
	store          *redisstore.Store
	clients, admin net.Addr
}

// gatewayBanner tells what runs, what is guarded, and what to do next.
func (p *program) gatewayBanner(ctx context.Context, c *gatewayConfig, at gatewayAt, log *slog.Logger) error {
	routes := at.gateway.Routes()
	s := gatewayStarted{
		started: started{
			URL: "http://" + reachable(at.clients.String()), AdminURL: "http://" + reachable(at.admin.String()), Store: string(at.store.Mode()), Address: at.store.Address(), Ack: at.store.Ack(),
			Durability: durability(c.config, at.store), Version: version().Version,
		},
		Upstream: c.upstream.String(), Routes: shownRoutes(routes),
	}
	if err := at.store.Ping(ctx); err != nil {
		s.Problem = err.Error()
	} else {
		s.Hazards = hazards(ctx, at.store, log)
	}
	return p.print(s, s.people(routes))
}

func (s gatewayStarted) people(routes gateway.Routes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "coatcheck %s gateway\n\n", s.Version)
	fmt.Fprintf(&b, "  listening   %s\n", s.URL)
	fmt.Fprintf(&b, "  upstream    %s\n", s.Upstream)
	fmt.Fprintf(&b, "  admin       %s/readyz  %s/metrics  %s/debug/pprof/\n", s.AdminURL, s.AdminURL, s.AdminURL)
	fmt.Fprintf(&b, "  store       %s  %s\n", s.Store, strings.TrimPrefix(s.Address, "embedded:"))
	fmt.Fprintf(&b, "  durability  %s\n", s.Durability)
	for _, hazard := range s.Hazards {
		fmt.Fprintf(&b, "  WARNING     %s\n", hazard)
	}
	if s.Problem != "" {
		fmt.Fprintf(&b, "  PROBLEM     the store does not answer: %s\n              guarded routes answer 503 until it does; everything else passes\n", s.Problem)
	}
	fmt.Fprintf(&b, "\n%s\nTry, twice:\n  %s\nWhat clients may read: %s/idempotency-policy\n\n", routesTable(routes), try(s.URL, routes[0]), s.URL)
	return b.String()
}

func routesTable(routes gateway.Routes) string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "  GUARDED\tACCEPT\tPOLICY")
	for _, route := range shownRoutes(routes) {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", route.Match, route.Accept, route.Policy)
	}
	_ = table.Flush() // a builder takes everything
	return b.String()
}

// try is a command that shows a route at work.
func try(at string, route gateway.Route) string {
	method, path, found := strings.Cut(route.Name, " ")
	if !found {
		method, path = "POST", route.Name
	}
	path = path[max(0, strings.IndexByte(path, '/')):]
	header := "Idempotency-Key: order-1"
	if route.Accept == idempotency.TokenOnly {
		header = "Idempotency-Token: $TOKEN"
	}
	return fmt.Sprintf("curl -i -X %s '%s%s' -H \"%s\" -d '…'", method, at, path, header)
}
