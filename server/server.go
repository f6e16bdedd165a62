package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/internal/share"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
	"github.com/coatcheck/coatcheck/server/internal/compat"
	"github.com/coatcheck/coatcheck/server/internal/events"
	"github.com/coatcheck/coatcheck/server/internal/ledger"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/workerlease"
)

// The defaults of a Config.
const (
	DefaultMaxBody        = 1 << 20 // bytes
	DefaultRequestTimeout = 30 * time.Second
	DefaultSegmentStep    = redissource.DefaultStep // ids
	DefaultLockWaits      = 2000                    // requests that wait for locks at once
)

// maxStreams is how many requests a connection of HTTP/2 may have under way: with 100, requests
// without a body on 2,000 connections took more memory than a pod has (TestMemoryUnderAttackByTLS…
// in cmd/coatcheck/internal/cli). net/http's own bound is 250.
const maxStreams = 32

// Config sets up a service. The zero value of each field but Store means the default beside it.
type Config struct {
	Store  *redisstore.Store // stays open when the server ends; the caller closes it after
	Logger *slog.Logger      // nil = no log
	// Metrics count what the service does. They belong to one server, and should observe the store
	// as well: see [redisstore.Config]. nil = metrics that do not.
	Metrics *metrics.Service
	// makes the spans of requests, those of calls to the store excepted; nil = no request is traced
	Tracer trace.Tracer
	Debug  http.Handler // is at /debug/ of [Server.Admin]; nil = nothing is

	// returns the caller of a request; keys and tokens of two principals never meet. nil =
	// idempotency.HeaderPrincipal("Authorization")
	Principal  func(*http.Request) (string, error)
	OneCaller  bool                 // as [idempotency.Config].OneCaller
	TokenKeys  []idempotency.Secret // sign issued tokens; nil = not signed
	AnswerKeys []idempotency.Secret // encrypt stored answers; nil = stored as they are
	KeepOpen   time.Duration        // as in [idempotency.Config]

	// Access decides what each caller may do; nil = every caller may do everything, and Principal
	// tells callers apart. With it the principal is that of the key or certificate.
	Access *access.Policy

	Counters counter.Config // every server and client of a store must have it alike

	// every server and client of a store must have AfterLoss, LongestTTL and Skew alike
	Locks lock.Config

	// Segments is how ids of /id/segment are fetched ahead. SegmentSource is where from; nil =
	// counters of the store, set as Counters but as redissource.Counters says.
	Segments      segment.Config
	SegmentSource segment.Source
	// lists the source's tags for people; nil = none, or those of the store's counters
	SegmentTags func(context.Context) ([]SegmentTag, error)
	// ids that the store's counters give at least, 1 to counter.MaxBy; 0 = DefaultSegmentStep
	SegmentStep int64
	// tags that the store's counters do not have are refused; else they begin at 1
	KnownSegments bool
	// make ids opaque, the newest first; nil = none can be
	OpaqueKeys []idempotency.Secret

	Leaf         LeafDoor
	TinyidTokens []TinyidToken // nil = the door is closed to all

	// Workers is of the worker-id pools; every server and client of a pool must have it alike. The
	// pool of Leaf's ids is pinned to Leaf's layout and epoch.
	Workers workerlease.Config

	IDPool string // pool of /id/snowflake, of which a worker id is leased from the start; "" = none
	// more pools to lease worker ids of from the start; /readyz speaks of these and of IDPool
	StampPools []string
	ReadyWhen  ReadyWhen // what makes /readyz say that the service is ready; "" = ReadyWithIDs
	Identity   string    // under which this server leases worker ids to stamp with; "" = none
	IDPools    int       // pools that this server stamps ids of at once; 0 = 64

	// requests that wait for locks at once; with Access a principal has a share of them; 0 = 2000
	LockWaits int

	// TLS gives the settings in force, where the listener speaks TLS: a client certificate that has
	// ended, or whose authority is none of ClientCAs any more, is refused at the next request of
	// its connection. nil = it is looked at when the connection begins alone.
	TLS func() *tls.Config

	// whose pages may ask from a browser, such as https://shop.example; nil = the service's own
	CORSOrigins []string

	// AllowedHosts are names under which clients ask, beside addresses and localhost:
	// coatcheck.internal, *.example.com, or * for every name. nil = with Access every name, else no
	// other.
	AllowedHosts []string

	Console ConsoleConfig

	// AccessLog is which requests have a line in the log: all, none, or no-health: all but those
	// for /livez, /readyz and /metrics. "" = no-health
	AccessLog string
	// AuditLog is which acts and refusals the log has: names, no-names or none. "" = names
	AuditLog string
	// TellCauses adds to problems the cause of a failure, which else only the log has: it may be an
	// address of the store. It is for a program that asks its own handler.
	TellCauses bool

	Dev          bool          // turns on the demo routes /payments
	PaymentDelay time.Duration // demo: how long a payment takes after its charge
	PaymentLease time.Duration // demo: how long a payment's attempt may be silent; 0 = 30 s

	MaxBody int64 // bytes of a request's body; 0 = DefaultMaxBody
	// how long a request may take, with its body's arrival, a day at most; 0 =
	// DefaultRequestTimeout
	RequestTimeout time.Duration
	HeaderTimeout  time.Duration // how long the header of a request may take to arrive; 0 = 5 s
	IdleTimeout    time.Duration // how long a connection is kept without a request; 0 = 2 min
	// bytes of a request's line and header; 0 = 64 KiB. More than 256 fields are always too many
	MaxHeader int
	// connections that are open at once: beyond it, the one that is unused for longest is closed
	// for a new one. As many requests may be under way; with Access a principal has a share of
	// them; 0 = 10000
	MaxConnections int
	// of those, connections of one address, or of one /64 of IPv6; 0 = all
	MaxPerAddress int
	// memory that requests under way may take; 0 = a quarter of GOMEMLIMIT, else 256 MiB, and four
	// bodies at least
	MaxBytes int64
	// how long /readyz says "stopping" before the listener closes; 0 = not at all
	DrainDelay time.Duration
	// how long requests under way may take to end; 0 = RequestTimeout and 5 s
	StopTimeout time.Duration
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = requestlog.Logger(c.Logger)
	if c.Counters.Logger == nil {
		c.Counters.Logger = c.Logger
		if cmp.Or(c.AuditLog, audit.Names) != audit.Names {
			c.Counters.Logger = requestlog.Nameless(c.Logger)
		}
	}
	if c.Locks.Logger == nil {
		c.Locks.Logger = requestlog.Nameless(c.Logger)
	}
	if c.Access != nil {
		c.Principal = func(r *http.Request) (string, error) { return access.From(r.Context()).Principal, nil }
	}
	c.Workers.Pools = compat.LeafConfig(c.Leaf).Pin(c.Workers.Pools)
	if c.Metrics == nil {
		c.Metrics = metrics.NewService("")
	}
	if c.Principal == nil {
		c.Principal = idempotency.HeaderPrincipal("Authorization")
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.RequestTimeout = min(cmp.Or(c.RequestTimeout, DefaultRequestTimeout), longestWait)
	c.StopTimeout = cmp.Or(c.StopTimeout, c.RequestTimeout+frontdoor.StopMargin)
	c.SegmentStep = cmp.Or(c.SegmentStep, DefaultSegmentStep)
	c.Console.Mode = cmp.Or(c.Console.Mode, ConsoleWrite)
	return c
}

// door bounds what clients can use before their request is known.
func (c Config) door() frontdoor.Config {
	most := cmp.Or(c.MaxBytes, max(frontdoor.DefaultMaxBytes(), 4*c.MaxBody))
	return frontdoor.Config{
		HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout, MaxHeader: c.MaxHeader,
		MaxConnections: c.MaxConnections, MaxPerAddress: c.MaxPerAddress,
		MaxBytes: most, ShareBytes: max(most/4, 2*c.MaxBody+int64(c.MaxHeader)), Logger: c.Logger,
	}
}

// Server is the HTTP service on one store.
type Server struct {
	config   Config
	echo     *echo.Echo
	store    *redisstore.Store
	log      *slog.Logger
	tokens   *idempotency.Tokens
	counters *counter.Counters
	segments *segment.Segments
	source   segment.Source
	stored   *redissource.Source // under source; nil = it is another kind
	pools    *workerlease.Pools
	stamper  *stamper.Stamper
	ledger   *ledger.Ledger
	limits   *limit.Limits
	locks    *lock.Locks
	events   *events.Log
	history  *history
	metrics  *metrics.Service
	door     *frontdoor.Door

	admission *admission
	journal   *journal
	probes    *probes
	guards    *guards
	life      context.Context // of what waits: it ends when the server does
	end       func()
	draining  frontdoor.Draining
	origins   atomic.Pointer[frontdoor.Origins]
	hosts     atomic.Pointer[frontdoor.Hosts]
	now       func() time.Time

	known map[string]endpoint // by method and Echo's path, such as "GET /incr/:key"
}

// policyPath is where clients read what the guarded routes take.
const policyPath = "/idempotency-policy"

// New returns a service that is not listening yet. With an IDPool it begins at once to lease a
// worker id, until Close.
func New(config Config) *Server {
	config = config.withDefaults()
	workers := config.Workers
	// the stampers of this service log themselves what they wait for
	workers.Logger = cmp.Or(workers.Logger, slog.New(slog.DiscardHandler))
	s := &Server{
		config: config, store: config.Store, log: config.Logger, metrics: config.Metrics,
		counters: counter.New(config.Store, config.Counters), pools: workerlease.New(config.Store, workers), ledger: ledger.New(config.Store),
		limits: limit.New(config.Store, limit.Config{}),
		locks:  lock.New(config.Store, config.Locks), events: events.New(), door: frontdoor.New(config.door()),
		now: time.Now, known: map[string]endpoint{},
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.tokens = idempotency.New(config.Store, idempotency.Config{
		Principal: config.Principal, OneCaller: config.OneCaller, Error: s.writeGuardError, Logger: config.Logger,
		TokenKeys: config.TokenKeys, AnswerKeys: config.AnswerKeys, KeepOpen: config.KeepOpen, PolicyURL: policyPath,
		Completed: func() { s.events.Count(events.OperationCompleted) }, Admit: s.admit, Reserve: reserveAnswer,
	})
	s.stamper = stamper.New(s.pools, stamper.Config{
		Default: config.IDPool, Keep: config.StampPools, Identity: config.Identity, Max: config.IDPools,
		Logger: config.Logger, Shapes: compat.LeafConfig(config.Leaf).Shapes(), Owner: owner,
	})
	s.journal = &journal{events: s.events, audit: audit.New(config.Logger, config.AuditLog), access: config.Access, routes: s.known}
	s.admission = &admission{
		policy: config.Access, limiter: access.NewLimiter(config.Store, config.Logger), journal: s.journal, tls: config.TLS,
		now:       func() time.Time { return s.now() },
		requests:  share.Quota{Most: cmp.Or(config.MaxConnections, frontdoor.DefaultMaxConnections), Lone: config.Access == nil},
		lists:     share.Quota{Most: atOnce, Lone: config.Access == nil},
		documents: share.Quota{Most: atOnce},
	}
	s.probes = &probes{
		when: config.ReadyWhen, identity: config.Identity, log: config.Logger, admission: s.admission,
		store: config.Store, health: s.checker(), pools: s.pools, stamper: s.stamper,
	}
	s.openSegments()
	s.SetCORSOrigins(config.CORSOrigins)
	s.SetAllowedHosts(config.AllowedHosts)
	s.echo = s.routes()
	s.showMetrics()
	s.history = newHistory(s)
	return s
}

// Handler is the service as an http.Handler, for a program that listens itself. Such a program
// calls Close at its end.
func (s *Server) Handler() http.Handler { return s.echo }

// Close ends the waits for locks, releases this server's worker ids, which takes two seconds at
// most, and waits until late answers are recorded, or until the context ends.
func (s *Server) Close(ctx context.Context) error {
	s.end()
	s.history.ended.Wait()
	s.stamper.Close(ctx)
	s.closeSegments()
	s.admission.limiter.Close()
	s.journal.audit.Close()
	return errors.Join(s.limits.Close(), s.locks.Close(), s.counters.Close(), s.tokens.Close(ctx))
}

// Serve answers requests on the listener until the context ends, then stops in good order: /readyz
// answers 503 and every answer ends its connection, a short wait for load balancers to see it, no
// new connections, requests under way end, worker ids are given back, late answers are recorded.
// The error reports whether a complete request was cut off. The caller closes the store after that.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	web := s.door.Server(s.echo)
	connected := web.ConnContext
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return withVerified(connected(ctx, c), c) }
	web.ReadTimeout = s.config.RequestTimeout
	web.WriteTimeout = s.config.RequestTimeout + 5*time.Second
	web.HTTP2.MaxConcurrentStreams = maxStreams
	web.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(s.door.Around(listener)) }()
	select {
	case err := <-failed:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.StopTimeout)
		defer cancel()
		return errors.Join(err, s.door.Cut(web), s.Close(ctx))
	case <-ctx.Done():
	}
	return s.stop(context.WithoutCancel(ctx), web)
}

// closeTime is how long Close may take at the end of Serve, however long the requests took.
const closeTime = 5 * time.Second

func (s *Server) stop(ctx context.Context, web *http.Server) error {
	s.draining.Begin(s.door, s.door.UnderWay(), s.config.DrainDelay, s.config.StopTimeout)
	s.end()
	patient, cancel := context.WithTimeout(ctx, s.config.StopTimeout)
	defer cancel()
	err := errors.Join(s.door.Stop(patient, web), s.door.Cut(web))
	last, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	return errors.Join(err, s.Close(last))
}
