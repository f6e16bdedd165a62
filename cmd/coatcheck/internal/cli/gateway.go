package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/signal"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/config"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/tracing"
	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
)

func (p *program) gatewayCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "gateway --upstream URL --routes FILE", Short: "Run an idempotency proxy in front of a service in any language", Args: noArgs,
		Long: "Run a reverse proxy that makes routes of a service safe to ask for twice: one token or key, one request to the service, " +
			"one answer.\n" +
			"The routes file says which ones; everything else passes as it is.",
		Example: "  coatcheck gateway --upstream http://127.0.0.1:3000 --routes routes.yaml --redis redis://localhost:6379",
	}
	l := &config.Sources{}
	c := &config.Gateway{Service: &l.Service}
	l.Bind(command.Flags(), config.GatewaySettings(c))
	only := command.Flags().Bool("check", false, "check the routes file and the settings, and exit: 0 if they are in order, 2 if not")
	command.RunE = func(cc *cobra.Command, _ []string) error {
		loaded := l.Load(cc.Flags(), p.getenv)
		routes, err := c.Check(*only)
		if err := errors.Join(loaded, c.CheckTogether(), err); err != nil {
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

func (p *program) gateway(ctx context.Context, l *config.Sources, c *config.Gateway) (err error) {
	hangups := catchHangups()
	defer signal.Stop(hangups)
	log, level := p.levelled(c.Service)
	redisstore.LogTo(log)
	// net/http writes there what an upstream sends unasked, which may be a secret
	slog.SetDefault(slog.New(slog.DiscardHandler))
	traces, err := p.openTraces(ctx, c.Service, tracing.Config{Service: "coatcheck-gateway", Logger: log})
	if err != nil {
		return err
	}
	defer endTraces(ctx, traces, log)
	measures := metrics.NewStore(version().Version)
	store, err := openStore(ctx, c.Service, log, append(traces.Observers(), measures)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	settings := c.Config()
	settings.Store, settings.Logger, settings.Metrics, settings.Tracer, settings.Debug = store, log, measures, traces.Tracer(), profiles()
	if settings.Principal, err = openPrincipal(ctx, c.Service, log); err != nil {
		return err
	}
	settings.MaxConnections = connections(c.Service, log)
	g, err := gateway.New(settings)
	if err != nil {
		return configError(err)
	}
	warnAdmin(c.Admin, log)
	clients, admin, err := openListeners(c)
	if err != nil {
		return errors.Join(err, g.Close(ctx))
	}
	if err := p.gatewayBanner(ctx, c, gatewayAt{g, store, clients.Addr(), admin.Addr()}, log); err != nil {
		return errors.Join(err, clients.Close(), admin.Close(), g.Close(ctx))
	}
	defer onHangup(ctx, hangups, reloadGateway(l, log, level, g).Reload)()
	err = g.Serve(ctx, clients, admin)
	log.Info("stopped")
	return err
}

func openListeners(c *config.Gateway) (clients, admin net.Listener, err error) {
	if clients, err = net.Listen("tcp", c.Listen); err != nil {
		return nil, nil, fmt.Errorf("%w; choose another address with --listen, or --listen 127.0.0.1:0 for a free port", err)
	}
	if admin, err = net.Listen("tcp", c.Admin); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w; choose another address with --admin, or --admin 127.0.0.1:0 for a free port", err),
			clients.Close())
	}
	return clients, admin, nil
}

type gatewayStarted struct {
	started

	Upstream string       `json:"upstream"`
	Routes   []shownRoute `json:"routes"`
}

type shownRoute struct {
	Match  string `json:"match"`
	Accept string `json:"accept"`
	Policy string `json:"policy"`
	// where the key is, in place of Idempotency-Key: headers in their order, then a place in the
	// JSON body; none = there
	KeyHeader   []string `json:"key_header,omitempty"`
	KeyFromBody string   `json:"key_from_body,omitempty"`
	// who the caller is, where the route has its own; "" = as for all
	Principal string `json:"principal,omitempty"`
}

func shownRoutes(routes gateway.Routes) (list []shownRoute) {
	for _, route := range routes {
		shown := shownRoute{Match: route.Name, Accept: string(route.Accept), Policy: string(route.Policy), KeyHeader: route.KeyHeaders,
			KeyFromBody: route.KeyFromBody}
		if route.JWT != nil {
			shown.Principal = byToken(*route.JWT)
		}
		list = append(list, shown)
	}
	return list
}

// gatewayAt is a gateway that is about to run, and its addresses.
type gatewayAt struct {
	gateway        *gateway.Gateway
	store          *redisstore.Store
	clients, admin net.Addr
}

// gatewayBanner reports what runs, what is guarded, and what to do next.
func (p *program) gatewayBanner(ctx context.Context, c *config.Gateway, at gatewayAt, log *slog.Logger) error {
	routes := at.gateway.Routes()
	s := gatewayStarted{
		started:  startedAt(ctx, c.Service, at.store, servedAt{at.clients, "http://" + reachable(at.admin.String())}, log),
		Upstream: c.Gateway.Upstream.String(), Routes: shownRoutes(routes),
	}
	if !slices.ContainsFunc(routes, func(route gateway.Route) bool { return route.JWT == nil }) {
		s.Principal = "by the verified token of each route, as below"
	}
	return p.print(s, s.people(routes))
}

func (s gatewayStarted) people(routes gateway.Routes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "coatcheck %s gateway\n\n", s.Version)
	fmt.Fprintf(&b, "  listening   %s\n", s.URL)
	fmt.Fprintf(&b, "  upstream    %s\n", s.Upstream)
	s.places(&b)
	fmt.Fprintf(&b, "  callers     %s\n", s.Principal)
	s.faults(&b, "guarded routes answer 503 until it does; everything else passes")
	fmt.Fprintf(&b, "\n%s\nTry, twice:\n  %s\nWhat clients may read: %s/idempotency-policy\n\n", routesTable(routes), try(s.URL,
		routes[0]), s.URL)
	return b.String()
}

func routesTable(routes gateway.Routes) string {
	shown, head := shownRoutes(routes), "  GUARDED\tACCEPT\tPOLICY"
	ownKeys := slices.ContainsFunc(shown, func(s shownRoute) bool { return len(s.KeyHeader) > 0 || s.KeyFromBody != "" })
	if ownKeys {
		head += "\tKEY"
	}
	ownCallers := slices.ContainsFunc(shown, func(s shownRoute) bool { return s.Principal != "" })
	if ownCallers {
		head += "\tCALLERS"
	}
	return tabular(head, func(line func(...string)) {
		for _, route := range shown {
			cells := []string{"  " + route.Match, route.Accept, route.Policy}
			if ownKeys {
				cells = append(cells, route.key())
			}
			if ownCallers {
				cells = append(cells, cmp.Or(route.Principal, "as for all"))
			}
			line(cells...)
		}
	})
}

// key is where a request has its key: a token that was issued only where there are no others.
func (s shownRoute) key() string {
	if s.Accept == string(idempotency.TokenOnly) {
		return idempotency.TokenHeader
	}
	places := slices.Clone(s.KeyHeader)
	if s.KeyFromBody != "" {
		places = append(places, "body "+s.KeyFromBody)
	}
	return cmp.Or(strings.Join(places, ", "), idempotency.KeyHeader)
}

// try is a command that shows a route at work.
func try(at string, route gateway.Route) string {
	method, path, found := strings.Cut(route.Name, " ")
	if !found {
		method, path = "POST", route.Name
	}
	host, path, _ := strings.Cut(path, "/")
	header := "Idempotency-Key: order-1"
	switch {
	case route.Accept == idempotency.TokenOnly:
		header = "Idempotency-Token: $TOKEN"
	case len(route.KeyHeaders) > 0:
		header = route.KeyHeaders[0] + ": order-1"
	case route.KeyFromBody != "":
		header = "Content-Type: application/json"
	}
	if host != "" {
		header = "Host: " + host + `" -H "` + header
	}
	return fmt.Sprintf("curl -i -X %s '%s/%s' -H \"%s\" -d '…'", method, at, strings.TrimSuffix(path, "{$}"), header)
}
