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
			"The routes file says which ones. A request of another method than GET, HEAD, OPTIONS and TRACE that it does not name is refused.",
		Example: "  coatcheck gateway --upstream http://127.0.0.1:3000 --routes routes.yaml --redis redis://localhost:6379",
	}
	l := &config.Sources{}
	c := &config.Gateway{Service: &l.Service}
	l.Bind(command.Flags(), nil, config.GatewaySettings(c))
	only := command.Flags().Bool("check", false, "check the routes file and the settings, and exit: 0 if they are in order, 2 if not")
	command.RunE = func(cc *cobra.Command, _ []string) error {
		loaded := l.Load(cc.Flags(), p.getenv)
		if *only { // a routes file is checked where no Redis is
			c.Store.URL = cmp.Or(c.Store.URL, "embedded:")
		}
		routes, err := c.Check(*only)
		if err := errors.Join(loaded, c.CheckTogether(), err); err != nil {
			return configError(err)
		}
		if *only {
			return p.print(checkedOf(routes), "The routes file is in order.\n\n"+routesTable(routes))
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
	store, err := openStore(ctx, c.Service, log, append(traces.Observers(), measures.Observer())...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	settings := c.Config()
	settings.Store, settings.Logger, settings.Metrics, settings.Tracer = store, log, measures, traces.Tracer()
	settings.Debug = profiles(c.Profiles)
	if settings.Principal, err = openPrincipal(ctx, c.Service, log); err != nil {
		return err
	}
	settings.MaxConnections = connections(c.Service, log)
	g, err := gateway.New(settings)
	if err != nil {
		return configError(err)
	}
	warnAdmin(c.AdminListen, log)
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
	if admin, err = net.Listen("tcp", c.AdminListen); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w; choose another address with --admin-listen, or --admin-listen 127.0.0.1:0 for a free port",
			err),
			clients.Close())
	}
	return clients, admin, nil
}

type gatewayStarted struct {
	started

	checked

	Upstream string `json:"upstream"`
}

// checked is a routes file that is in order.
type checked struct {
	Routes    []shownRoute `json:"routes"`
	Unmatched string       `json:"unmatched"` // unsafe requests that no route names: refuse or pass
	// patterns of unsafe requests that pass unguarded, and those of them that match several paths
	Unguarded     int      `json:"unguarded_routes"`
	UnguardedWide []string `json:"unguarded_wide,omitempty"`
	Remarks       []string `json:"remarks,omitempty"` // what is in order and may not be meant
}

func checkedOf(routes gateway.Routes) checked {
	unguarded, wide := routes.Unguarded()
	return checked{shownRoutes(routes), routes.Unmatched(), len(unguarded), wide, routes.Remarks()}
}

type shownRoute struct {
	Match  []string `json:"match"`
	Guard  bool     `json:"guard"`
	Accept string   `json:"accept,omitempty"`
	Policy string   `json:"policy,omitempty"`
	Keys   string   `json:"keys,omitempty"` // its key space; "" = the gateway's
	// where the key is, in place of Idempotency-Key: headers in their order, then a place in the
	// JSON body; none = there
	KeyHeader   []string `json:"key_header,omitempty"`
	KeyFromBody []string `json:"key_from_body,omitempty"`
	// who the caller is, where the route has its own; "" = as for all
	Principal string `json:"principal,omitempty"`
	// how statuses end an operation, and who is asked about one in doubt; "" = nobody
	Keep    []string `json:"keep,omitempty"`
	Frees   []string `json:"frees,omitempty"`
	Doubts  []string `json:"doubts,omitempty"`
	Resolve string   `json:"resolve,omitempty"`
}

func shownRoutes(routes gateway.Routes) []shownRoute {
	list := []shownRoute{}
	for _, route := range routes.List {
		shown := shownRoute{Match: route.Match}
		if !route.Unguarded {
			shown = shownRoute{Match: route.Match, Guard: true, Accept: string(route.Accept), Policy: string(route.Policy), Keys: route.Keys,
				KeyHeader: route.KeyHeaders, KeyFromBody: route.KeyFromBody, Principal: byCaller(route.Caller),
				Keep: route.Keep, Frees: route.Frees, Doubts: route.Doubts, Resolve: route.ResolveAt}
		}
		list = append(list, shown)
	}
	return list
}

// byCaller says what tells the callers of a route apart; "" = as for all.
func byCaller(c gateway.Caller) string {
	switch {
	case c.JWT != nil:
		return byToken(*c.JWT)
	case len(c.Cookies) > 0:
		return "by cookie " + strings.Join(c.Cookies, ", ")
	case c.Ask != nil:
		return "by " + c.Ask.Header + " of " + c.Ask.URL
	case c.One:
		return "all are the same"
	}
	return ""
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
		Upstream: c.Gateway.Upstream.String(), checked: checkedOf(routes),
	}
	if !slices.ContainsFunc(s.Routes, func(route shownRoute) bool { return route.Guard && route.Principal == "" }) {
		s.Principal = "of each route, as below"
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
	s.faults(&b, "guarded routes answer 503 until it does; safe methods and routes with guard: false pass")
	fmt.Fprintf(&b, "\n%s", routesTable(routes))
	if guarded := routes.Guarded(); len(guarded) > 0 {
		fmt.Fprintf(&b, "\nTry, twice:\n  %s", try(s.URL, guarded[0]))
	}
	fmt.Fprintf(&b, "\nWhat clients may read: %s/idempotency-policy\n\n", s.URL)
	return b.String()
}

// restOf says what becomes of requests that are not guarded, and what may not be meant.
func restOf(routes gateway.Routes) string {
	var b strings.Builder
	switch {
	case routes.Open && len(routes.List) == 0:
		b.WriteString("  WARNING: no route is named, and every request passes (unmatched: pass); only those with a key are guarded.\n")
	case routes.Open:
		b.WriteString("  WARNING: every other request passes (unmatched: pass); one with a key is guarded.\n")
	default:
		b.WriteString("  Every other request is refused, but for GET, HEAD, OPTIONS and TRACE.\n")
	}
	if all, wide := routes.Unguarded(); len(all) > 0 {
		fmt.Fprintf(&b, "  Unguarded (guard: false), with a key as well: %d.", len(all))
		if len(wide) > 0 {
			fmt.Fprintf(&b, " WARNING: of these %d match more than one path: %s.", len(wide), strings.Join(wide, ", "))
		}
		b.WriteString("\n")
	}
	for _, remark := range routes.Remarks() {
		fmt.Fprintf(&b, "  Remark: %s.\n", remark)
	}
	return b.String()
}

func routesTable(routes gateway.Routes) string {
	shown, head := shownRoutes(routes), "  ROUTE\tACCEPT\tPOLICY"
	ownKeys := slices.ContainsFunc(shown, func(s shownRoute) bool { return len(s.KeyHeader) > 0 || len(s.KeyFromBody) > 0 })
	if ownKeys {
		head += "\tKEY"
	}
	ownCallers := slices.ContainsFunc(shown, func(s shownRoute) bool { return s.Principal != "" })
	if ownCallers {
		head += "\tCALLERS"
	}
	ownEnds := slices.ContainsFunc(shown, func(s shownRoute) bool { return s.ends() != "" })
	if ownEnds {
		head += "\tENDS"
	}
	return tabular(head, func(line func(...string)) {
		for _, route := range shown {
			cells := []string{"  " + strings.Join(route.Match, ", "), route.Accept, route.Policy}
			if !route.Guard {
				line(cells[0], "unguarded")
				continue
			}
			if ownKeys {
				cells = append(cells, route.key())
			}
			if ownCallers {
				cells = append(cells, cmp.Or(route.Principal, "as for all"))
			}
			if ownEnds {
				cells = append(cells, cmp.Or(route.ends(), "as usual"))
			}
			line(cells...)
		}
	}) + restOf(routes)
}

// key is where a request has its key: a token that was issued only where there are no others.
func (s shownRoute) key() string {
	if s.Accept == string(idempotency.AcceptToken) {
		return idempotency.TokenHeader
	}
	places := slices.Clone(s.KeyHeader)
	if len(s.KeyFromBody) > 0 {
		places = append(places, "body "+strings.Join(s.KeyFromBody, idempotency.KeyJoint))
	}
	return cmp.Or(strings.Join(places, ", "), idempotency.KeyHeader)
}

// ends says how operations end on a guarded route that has its own words for it; "" = as usual.
func (s shownRoute) ends() string {
	var parts []string
	if len(s.Keep) > 0 {
		parts = append(parts, "keeps "+strings.Join(s.Keep, ", "))
	}
	if len(s.Frees) > 0 {
		parts = append(parts, strings.Join(s.Frees, ", ")+" free the key")
	}
	usual := idempotency.Route{Keep: s.Keep, Frees: s.Frees}.WithDefaults().Doubts
	if s.Guard && !slices.Equal(s.Doubts, usual) {
		parts = append(parts, cmp.Or(strings.Join(s.Doubts, ", "), "no status")+" in doubt")
	}
	if s.Resolve != "" {
		parts = append(parts, "asks "+s.Resolve)
	}
	return strings.Join(parts, "; ")
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
	case route.Accept == idempotency.AcceptToken:
		header = "Idempotency-Token: $TOKEN"
	case len(route.KeyHeaders) > 0:
		header = strings.ReplaceAll(route.KeyHeaders[0], idempotency.KeyJoint, `: order-1" -H "`) + ": order-1"
	case len(route.KeyFromBody) > 0:
		header = "Content-Type: application/json"
	}
	if host != "" {
		header = "Host: " + host + `" -H "` + header
	}
	return fmt.Sprintf("curl -i -X %s '%s/%s' -H \"%s\" -d '…'", method, at, strings.TrimSuffix(path, "{$}"), header)
}
