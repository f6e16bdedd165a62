package gateway

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/muxpattern"
	"github.com/coatcheck/coatcheck/internal/noupgrade"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The defaults of a Config.
const (
	DefaultUpstreamIdle = time.Second
	DefaultBodyTimeout  = 30 * time.Second
)

// Config sets up a gateway. All but Store, Upstream and RoutesFile have the default beside them.
type Config struct {
	Store      *redisstore.Store // stays open when the gateway ends; the caller closes it after
	Upstream   Upstream
	RoutesFile string // its path; it is read again when it changes, see [Gateway.Reload]
	// of this gateway alone; they should observe the store as well, see [redisstore.Config]. nil =
	// metrics that do not
	Metrics *metrics.Store
	// makes the spans of requests, those of calls to the store excepted; nil = no request is traced
	Tracer trace.Tracer
	Debug  http.Handler // is at /debug/ of the admin side; nil = nothing is
	// nil = no log. It never sees a token, a key, a path or what the upstream answers
	Logger *slog.Logger
	// which requests have a line in the log: all, those on the admin side included, no-health or
	// none; "" = no-health
	AccessLog string
	// which refusals have a line in the log: names, no-names (here the same) or none; "" = names
	AuditLog string

	// returns the caller, as [idempotency.Config].Principal; nil = its default
	Principal func(*http.Request) (string, error)
	OneCaller bool // as [idempotency.Config].OneCaller
	// check the signature of issued tokens; nil = tokens are not signed
	TokenKeys  []idempotency.Secret
	AnswerKeys []idempotency.Secret // encrypt stored answers; nil = stored as they are
	KeepOpen   time.Duration        // as in [idempotency.Config]

	// AllowedHosts are names under which clients ask, beside addresses and localhost, such as
	// shop.example or *.example.com. nil = every name; for the admin side no other.
	AllowedHosts []string

	// keeps the X-Forwarded headers that a client sends: only behind a proxy that writes them
	TrustForwarded bool
	// sends the client's Host to the upstream instead of the upstream's own
	PreserveHost bool
	// names of headers of clients that are sent to the upstream though the gateway drops them by
	// default
	PassHeaders []string
	// where clients find /token/{token} and /operation/{operation}, without a slash at the end;
	// "" = tokens at the same address, operations nowhere
	TokenService string
	// for an https upstream; nil = the system's certificate authorities
	TLS *tls.Config
	// how long an unused connection for guarded requests is kept: less than the upstream keeps it;
	// below 10 ms none is kept; 0 = DefaultUpstreamIdle
	UpstreamIdle time.Duration
	// how long the body of a guarded request may take to arrive; 0 = DefaultBodyTimeout
	BodyTimeout time.Duration
	// how long a client may take nothing of an answer, or send nothing of a free body; 0 = 1 min
	StallTimeout  time.Duration
	HeaderTimeout time.Duration // how long the header of a request may take to arrive; 0 = 5 s
	// how long a client's connection is kept without a request; 0 = 2 min
	IdleTimeout time.Duration
	// bytes of a request's line and header; 0 = 64 KiB. More than 256 fields are always too many
	MaxHeader int
	// clients' connections that are open at once: beyond it, the one that is unused for longest is
	// closed for a new one; 0 = 10000
	MaxConnections int
	// of those, connections of one address, or of one /64 of IPv6; 0 = all
	MaxPerAddress int
	// memory that requests under way may take: the largest body of a route twice, at least; 0 = a
	// quarter of GOMEMLIMIT, else 256 MiB
	MaxBytes   int64
	WatchEvery time.Duration // how often the routes file is looked at; 0 = 2 s
	// how long /readyz says "stopping" before the listener closes; 0 = not at all
	DrainDelay time.Duration
	// how long requests under way may take to end; 0 = the routes' longest UpstreamTimeout and 5 s
	StopTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = requestlog.Logger(c.Logger)
	c.UpstreamIdle = cmp.Or(c.UpstreamIdle, DefaultUpstreamIdle)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, DefaultBodyTimeout)
	c.StallTimeout = cmp.Or(c.StallTimeout, time.Minute)
	c.WatchEvery = cmp.Or(c.WatchEvery, 2*time.Second)
	return c
}

// Gateway is the proxy. It is safe for concurrent use.
type Gateway struct {
	config  Config
	store   *redisstore.Store
	log     *slog.Logger
	tokens  *idempotency.Tokens
	metrics *measures

	open       *httputil.ReverseProxy // for what is not guarded
	once       *httputil.ReverseProxy // for what is
	question   http.RoundTripper      // for resolvers, on connections of their own
	transports []*http.Transport      // of all
	unnamed    unnamedWarning
	routes     atomic.Pointer[table]
	hosts      atomic.Pointer[frontdoor.Hosts]
	file       routesFile
	loading    sync.WaitGroup // of keys of bearer tokens, three seconds at most

	door     *frontdoor.Door // of clients
	working  atomic.Int64    // requests under way, those whose connection was handed over included
	draining frontdoor.Draining
	hard     context.Context // ends when the time to stop is over: it ends what is still under way
	end      context.CancelCauseFunc
	health   *health.Checker
	audit    *audit.Log
}

// New returns a gateway that is not listening yet. The error lists every fault of the routes file.
// Close it when no request is under way any more.
func New(config Config) (*Gateway, error) {
	config = config.withDefaults()
	if config.Store == nil || config.Upstream.url == nil {
		return nil, errors.New("gateway: a store and an upstream are needed")
	}
	if config.Principal == nil {
		config.Principal = idempotency.HeaderPrincipal("Authorization")
	}
	g := &Gateway{config: config, store: config.Store, log: config.Logger, metrics: newMeasures(config.Metrics)}
	g.door = config.door(config.MaxConnections)
	g.health, g.audit = g.checker(), audit.New(config.Logger, config.AuditLog)
	g.metrics.Ask("coatcheck_gateway_in_flight_bytes", metrics.KindGauge,
		"Memory that requests under way take, as far as it is counted: headers, guarded bodies and answers, and copying.", nil,
		func(tell metrics.Tell) { tell(float64(g.door.BytesInFlight())) })
	g.tokens = idempotency.New(config.Store, idempotency.Config{
		Principal: config.Principal, OneCaller: config.OneCaller, Error: g.refuse, Logger: config.Logger,
		TokenKeys: config.TokenKeys, AnswerKeys: config.AnswerKeys, KeepOpen: config.KeepOpen, PolicyURL: policyPath, Admit: g.admit,
		Resolved: g.resolved,
		// it is in memory as Redis sent it, as it was stored, and as it is sent
		Reserve: func(ctx context.Context, size int64) error { return frontdoor.Reserve(ctx, 4*size) },
	})
	free, guarded := config.Upstream.openTransport(config.TLS), config.Upstream.guardedTransport(config.TLS, config.UpstreamIdle)
	questions := config.Upstream.guardedTransport(config.TLS, config.UpstreamIdle)
	questions.DisableKeepAlives = true
	g.question = noupgrade.Transport{Next: g.traced(questions)}
	g.open, g.once, g.transports = g.proxy(g.traced(free)), g.proxy(g.traced(guarded)), []*http.Transport{free, guarded, questions}
	g.hard, g.end = context.WithCancelCause(context.Background())
	g.SetAllowedHosts(config.AllowedHosts)
	g.file.path = config.RoutesFile
	if err := g.Reload(); err != nil {
		return nil, err
	}
	g.metrics.Show(metrics.Program{Store: config.Store, Tokens: g.tokens, Routes: func() (names []string) {
		for _, route := range g.Routes().List {
			names = append(names, route.Name)
		}
		return append(names, othersName)
	}})
	return g, nil
}

// door bounds what clients can use before their request is known.
func (c Config) door(connections int) *frontdoor.Door {
	return frontdoor.New(frontdoor.Config{
		HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout, MaxHeader: c.MaxHeader,
		MaxConnections: connections, MaxPerAddress: c.MaxPerAddress, MaxBytes: c.MaxBytes, Logger: c.Logger,
	})
}

// SetAllowedHosts replaces [Config].AllowedHosts for later requests. It is safe for concurrent use.
func (g *Gateway) SetAllowedHosts(names []string) {
	hosts := frontdoor.Hosts(names)
	g.hosts.Store(&hosts)
}

func (g *Gateway) allowedHosts() frontdoor.Hosts { return *g.hosts.Load() }

// Close waits until late answers are recorded or the context ends, then drops upstream connections.
func (g *Gateway) Close(ctx context.Context) error {
	g.audit.Close()
	g.loading.Wait()
	err := g.tokens.Close(ctx)
	askClient.CloseIdleConnections()
	for _, transport := range g.transports {
		transport.CloseIdleConnections()
	}
	return err
}

// ServeHTTP answers with a page of the gateway's own, through the guard, or from the upstream.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.working.Add(1)
	defer g.working.Add(-1)
	dropListed(r.Header)
	x, r := begin(r)
	r = g.trace(r, x)
	out := &responder{ResponseWriter: w, request: r, id: x.id, begun: func() { x.onSend() }, stall: g.config.StallTimeout}
	defer func() {
		if out.taken != nil {
			g.door.Gone(out.taken)
		}
	}()
	out.Header().Set(requestIDHeader, x.id)
	g.metrics.inFlight.Inc()
	defer g.metrics.inFlight.Dec()
	defer g.finish(out, r, x)
	defer func() {
		if reason := recover(); reason != nil {
			g.recovered(out, r, x, reason)
		}
	}()
	g.serve(out, r, x)
}

func (g *Gateway) serve(w *responder, r *http.Request, x *exchange) {
	if !frontdoor.WellFormedTarget(r) {
		g.refuseTarget(w, r)
		return
	}
	if hosts := g.allowedHosts(); len(hosts) > 0 && !hosts.Allow(r.Host) {
		g.refuseField(w, r, api.Forbidden, "Host", frontdoor.HostRule)
		return
	}
	routes := g.routes.Load()
	step.At("gateway: took the routes")
	if g.ownPage(w, r, x, routes) {
		return
	}
	r, ok := g.routed(w, r, x, routes)
	if !ok {
		return
	}
	streams := x.route == nil || x.route.passes(r)
	if err := g.room(r, streams); err != nil {
		g.refuse(w, r, err)
		return
	}
	if !g.admits(w, r, x) {
		return
	}
	if g.draining.Closing.Load() && !streams {
		g.refuseAtStop(w, r, x)
		return
	}
	if streams {
		bothWays(w)
	} else {
		r.Body = boundBody(w, r.Body, g.config.BodyTimeout)
	}
	if !g.keepsMethod(w, r, x, streams) {
		return
	}
	if x.route == nil || x.route.Unguarded {
		g.passUnguarded(w, r, x)
		return
	}
	g.guarding(w, r, x)
}

// routed finds the route of a request, which has its plain path from then on. It answers a request
// that has none, unless it is safe; then ok is false.
func (g *Gateway) routed(w http.ResponseWriter, r *http.Request, x *exchange, routes *table) (routed *http.Request, ok bool) {
	if muxpattern.IsSafe(r.Method) {
		if g.config.Upstream.leaves(r.URL.Path) {
			g.refuseField(w, r, api.PathNotPlain, "path", "The path has a segment that is . or .., which could lead out of the upstream's path.")
			return r, false
		}
		x.route = routes.find(r)
		return asWritten(r), true
	}
	if !hostText().MatchString(r.Host) {
		g.refuseField(w, r, api.InvalidRequest, "Host",
			"the Host is a name or an address, and a port; nothing was sent to the service behind the gateway")
		return r, false
	}
	r, path, err := plainly(r)
	if err == nil {
		if routes.routes.asksAt(path.decoded) {
			x.outcome = routeUnknown
			g.writeProblem(w, r, api.NewProblem(api.RouteUnknown,
				"The gateway alone sends this request, to ask the service what became of an operation. Nothing was sent."))
			return r, false
		}
		x.route = routes.find(r)
		if !x.route.takes(path.encoded) {
			err = fmt.Errorf("it has one of %s percent-encoded, which only a route with encoded: takes", delimiters)
		}
	}
	if err != nil {
		g.refuseField(w, r, api.PathNotPlain, "path",
			"The path is not plain: "+err.Error()+". Nothing was sent to the service behind the gateway.")
		return r, false
	}
	if x.route == nil {
		x.route = routes.others
	}
	if x.route == nil {
		g.refuseUnnamed(w, r, x)
	}
	return r, x.route != nil
}

// bothWays lets a request go on while its answer comes. Else net/http's server would read and close
// what is left of its body when the answer begins, for which the transport still waits, if only for
// its end: it would take that for a failure, and close the upstream's connection under the answer.
func bothWays(w http.ResponseWriter) {
	_ = http.NewResponseController(w).EnableFullDuplex() // a writer that cannot has no such server
}

// passOn passes a request on that is not guarded. HTTP/2, which an https upstream may have, has no
// upgrades; and over HTTP/2 net/http sends a request without a body again, whatever its method, if
// the upstream says that it has not been processed, or was a protocol error.
func (g *Gateway) passOn(w http.ResponseWriter, r *http.Request) {
	againByItself := !muxpattern.IsSafe(r.Method) && r.ContentLength == 0
	if g.config.Upstream.url.Scheme == "https" && (againByItself || upgrade(r.Header) != "") {
		g.once.ServeHTTP(w, r)
		return
	}
	g.open.ServeHTTP(w, r)
}

// room refuses a guarded request for which there is no memory.
func (g *Gateway) room(r *http.Request, streams bool) error {
	if streams {
		return frontdoor.Stream(r, g.config.StallTimeout)
	}
	return frontdoor.Reserve(r.Context(), 0)
}

func (g *Gateway) finish(w *responder, r *http.Request, x *exchange) {
	x.outcome = cmp.Or(x.outcome, replay)
	took := time.Since(x.began)
	if w.status < http.StatusBadRequest { // what the service refuses, a stranger can send
		frontdoor.Know(r.Context())
	}
	g.metrics.requests.WithLabelValues(x.match(), string(x.outcome)).Inc()
	g.metrics.duration.WithLabelValues(x.match()).Observe(took.Seconds())
	g.writeLines(w, r, x, took)
	x.endTrace(r, w.status)
}

// Routes are the routes in force.
func (g *Gateway) Routes() Routes {
	routes := g.routes.Load().routes
	return Routes{List: slices.Clone(routes.List), Open: routes.Open}
}
