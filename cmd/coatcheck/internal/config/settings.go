package config

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/cmd/coatcheck/internal/tracing"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/jwtprincipal"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Service is the service's settings, after flags, environment and file: the configurations of its
// parts. A command adds the parts that it opens at its start.
type Service struct {
	Store  redisstore.Config
	Server server.Config
	Access access.Config

	Listen      string
	AdminListen string

	SegmentSource string
	SegmentTable  string

	AccessStore      bool // keys are read from the store as well
	TLSCert          string
	TLSKey           string
	TLSClientCA      string
	TLSClientAuth    string
	Insecure         bool
	Profiles         bool
	PrincipalHeaders []string
	PrincipalJWT     jwtprincipal.Config // without JWKS: not by tokens

	TraceEndpoint string
	TraceSample   *float64 // nil = unsaid

	LogLevel  slog.Level
	LogFormat string
}

// Variables begins the name of each setting's environment variable.
const Variables = "COATCHECK_"

// Setting is one line of the configuration: a flag, its variable and its key in the file.
type Setting struct {
	Name  string // of the flag and in the file
	Group string // the heading that it stands under; "" = none
	Value string // the default, then what was found
	Unit  string
	Help  string
	Parse func(string) error

	Unset  string              // the default
	Source string              // default, file, environment or flag
	Line   int                 // in the file
	Hot    bool                // a new value is taken on SIGHUP
	Redact func(string) string // hides what is secret in a value; nil = nothing is
	Nested bool                // in the file it is a map
	Toggle bool                // a flag that needs no value

	Choices []string // the values that there are; nil = others
	Kind    string   // what help says that it takes; "" = the unit
}

// Variable is the setting's environment variable.
func (s *Setting) Variable() string {
	return Variable(s.Name)
}

// Variable is the environment variable of a setting's name.
func Variable(setting string) string {
	return Variables + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// ServiceSettings is the table of all there is, bound to a config.
func ServiceSettings(c *Service) []*Setting {
	return slices.Concat(
		redisSettings(c),
		listenSettings(c),
		callerSettings(c),
		tokenSettings(c),
		afterLossSettings(c),
		workerSettings(c),
		segmentSettings(c),
		lockSettings(c),
		stopSettings(c),
		logSettings(c),
		demoSettings(c),
	)
}

const defaultPrincipal = "Authorization"

// In puts settings under a heading, in help and in docs/configuration.md.
func In(group string, table ...*Setting) []*Setting {
	for _, s := range table {
		s.Group = group
	}
	return table
}

func redisSettings(c *Service) []*Setting {
	return In("Store",
		Redacted(Text("redis", "", "URL", "the store: redis:// | rediss:// | unix:// | redis+sentinel://h1,h2/<master> | "+
			"redis+cluster://h1,h2 | embedded:, in memory, which ends with the process; --dev without a URL takes that", &c.Store.URL),
			redisconn.Redact),
		NumberOrAll("ack", "0", 0, 100, redisstore.AckAll, "replicas or all",
			"replicas that must confirm every write before it counts; all: each that can become master", &c.Store.Ack),
		Choice("restarts", redisstore.RestartsAuto,
			[]redisstore.Restarts{redisstore.RestartsAuto, redisstore.RestartsWait, redisstore.RestartsTrust},
			"a restart or a failover of Redis: auto believes that nothing was lost where Redis proves it, wait never believes a restart, "+
				"trust believes everything, also a Redis that cannot show it; alike in all that use a prefix", &c.Store.Restarts),
		Text("prefix", redisstore.Config{}.WithDefaults().Prefix, "text", "before every key in Redis", &c.Store.Prefix),
		Optional(Span("store-timeout", Unsaid, 10*time.Millisecond, time.Minute,
			"how long one call to the store may take; empty: 1s, on the embedded store 30s", &c.Store.Timeout)),
		Number("max-bytes", strconv.Itoa(embedded.DefaultMaxBytes), 1<<20, 1<<40, "bytes",
			"embedded store: how much memory what it holds may take", &c.Store.MaxBytes),
	)
}

func listenSettings(c *Service) []*Setting {
	return In("Listening, and what clients may take",
		Address("listen", "127.0.0.1:8080", "where the service listens; port 0 takes a free one", &c.Listen),
		Optional(Address("admin-listen", "", "where /livez, /readyz, /metrics and /debug/pprof/ are for the operator, without a key; on "+
			"loopback, unless --insecure is said; empty: nowhere", &c.AdminListen)),
		Toggled("profiles", "true", "whether /debug/pprof/ is on the admin listener: profiles of this process for its operator, which can "+
			"show what it works on", &c.Profiles),
		Choice("console", server.ConsoleWrite, []server.ConsoleMode{server.ConsoleRead, server.ConsoleWrite, server.ConsoleOff}, "the "+
			"web page at /console/: write has buttons for what its user may do, read has none that change anything, off is no page",
			&c.Server.Console.Mode),
		Span("request-timeout", spelled(server.DefaultRequestTimeout), time.Second, 24*time.Hour, "how long a request may take",
			&c.Server.RequestTimeout),
		Span("idle-timeout", spelled(frontdoor.DefaultIdleTimeout), time.Second, time.Hour,
			"how long a client's connection is kept without a request", &c.Server.IdleTimeout),
		Number("max-body-bytes", strconv.Itoa(server.DefaultMaxBody), 1024, 1<<30, "bytes", "the largest body of a request", &c.Server.MaxBody),
		Number("max-connections", strconv.Itoa(frontdoor.DefaultMaxConnections), 1, 1_000_000, "connections", "clients' connections "+
			"that are open at once; beyond it, one is closed for a new one: first one without a complete request, last one that has "+
			"served a caller who may ask, and of these the one that is unused for longest. The process needs a file descriptor for "+
			"each (ulimit -n), and some more", &c.Server.MaxConnections),
		Number("max-connections-per-address", "0", 0, 1_000_000, "connections", "connections of one address that are open at once, or "+
			"of one /64 of IPv6; more are closed as they come. Behind a proxy all come from its address; 0: as many as there may be in all",
			&c.Server.MaxPerAddress),
		Optional(Number("max-bytes-in-flight", Unsaid, 1<<20, 1<<40, "bytes", "memory that requests under way may take, as far as it is "+
			"counted: headers and bodies twice, and answers that wait for their clients. Beyond it requests are answered 503 overloaded; "+
			"empty: a quarter of GOMEMLIMIT, else 256 MiB", &c.Server.MaxBytes)),
	)
}

func callerSettings(c *Service) []*Setting {
	return In("Who may do what",
		Hot(Text("access", "", "file", "who may do what: a YAML file of API keys and client certificates, see docs/access.md. It is "+
			"read again when it changes, and on SIGHUP", &c.Access.File)),
		Hot(records("access-keys", "more API keys: id:role:principal:names:sha256, where names are separated by |, and none are all",
			&c.Access.Keys)),
		Toggle("access-store", "API keys are those, too, that coatcheck key add has put into Redis; they are read again every 5 s, and "+
			"on SIGHUP", &c.AccessStore),
		Hot(Rate("rate", "how often each principal may ask, counted in Redis for all services together, such as 100/s; a key's own rate "+
			"counts before it; empty: as often as they like", &c.Access.Limit.Rate)),
		Hot(Optional(Number("burst", Unsaid, 1, 1_000_000, "requests", "how many requests beyond that rate may come at once; empty: "+
			"what it gives in a second, and one at least", &c.Access.Limit.Burst))),
		Headers("principal-headers", defaultPrincipal, "request headers that tell who is asking: the keys and tokens of two of them "+
			"never meet; none: all callers are the same", &c.PrincipalHeaders),
		Text("principal-jwt-jwks", "", "URL or file", "who is asking is a claim of the verified bearer token (JWT), so that a renewed "+
			"token is the same caller: where its issuer's public keys are (JWKS). A token that does not verify is 401. Empty: "+
			"--principal-headers", &c.PrincipalJWT.JWKS),
		Text("principal-jwt-claim", jwtprincipal.DefaultClaim, "claim", "the claim that tells callers of an issuer apart", &c.PrincipalJWT.Claim),
		words("principal-jwt-issuer", "text,…", "the iss that a token must have, in all the spellings of this one issuer; empty: any, and "+
			"callers of two never meet", &c.PrincipalJWT.Issuers),
		Text("principal-jwt-audience", "", "text", "the aud that a token must have; empty: any", &c.PrincipalJWT.Audience),
		algorithms("principal-jwt-algorithms", "the alg that a token may have; empty: every one here", &c.PrincipalJWT.Algorithms),
		Span("principal-jwt-leeway", spelled(jwtprincipal.DefaultLeeway), time.Second, jwtprincipal.MaxLeeway,
			"how far the issuer's clock may differ", &c.PrincipalJWT.Leeway),
		Hot(origins("cors-origins", "origins whose pages may ask from a browser, such as https://shop.example; empty: none",
			&c.Server.CORSOrigins)),
		Hot(HostNames("allowed-hosts", "names under which clients ask, beside every address and localhost, such as coatcheck.internal "+
			"or *.example.com; * is every name; empty: where keys are asked for every name, else no other", &c.Server.AllowedHosts)),
		Hot(Text("tls-cert", "", "file",
			"certificates of the service in PEM, its own first; empty: no TLS. Read again when it changes, and on SIGHUP", &c.TLSCert)),
		Hot(Text("tls-key", "", "file", "the key of that certificate in PEM", &c.TLSKey)),
		Hot(Text("tls-client-ca", "", "file", "authorities in PEM whose client certificates are taken; which is whose says --access",
			&c.TLSClientCA)),
		Hot(Choice("tls-client-auth", requestCertificate, []string{requestCertificate, RequireCertificate},
			"whether every client has to show such a certificate", &c.TLSClientAuth)),
		Toggle("insecure", "lets other machines reach the service without TLS, or without being asked who they are", &c.Insecure),
	)
}

func tokenSettings(c *Service) []*Setting {
	return In("Tokens and recorded answers",
		Keyring("token-keys", "keys that sign issued tokens, the newest first: id:base64 of 32 bytes; none: tokens are not signed",
			&c.Server.TokenKeys),
		Keyring("answer-keys", "keys that encrypt stored answers, the newest first: id:base64 of 32 bytes; none: stored as they are",
			&c.Server.AnswerKeys),
		Span("keep-open", spelled(idempotency.MinKeepOpen), idempotency.MinKeepOpen, idempotency.MaxKeepOpen, "how long an operation without "+
			"an answer is kept: until then nothing runs again under its key unless it is settled", &c.Server.KeepOpen),
	)
}

func afterLossSettings(c *Service) []*Setting {
	return In("Counters",
		Choice("counter-after-loss", counter.AfterLossMovePast, []counter.AfterLoss{counter.AfterLossMovePast, counter.AfterLossRefuse},
			"a counter that has gone back, or may have, since Redis has lost what it had confirmed: move it past every "+
				"value that can have been handed out, or "+
				"refuse it until it is set; what follows has to be alike in all that use a counter", &c.Server.Counters.AfterLoss),
		Optional(Number("counter-margin", Unsaid, 1, counter.MaxMargin, "values", fmt.Sprintf("how far such a counter moves; empty: %d, "+
			"with --ack %d", counter.DefaultMargin, counter.DefaultAckMargin), &c.Server.Counters.Margin)),
		Span("counter-hold-off", spelled(counter.DefaultHoldOff), time.Second, time.Minute, "after a loss of everything: how long "+
			"nothing is added, while all services say what they have seen", &c.Server.Counters.HoldOff),
	)
}

func workerSettings(c *Service) []*Setting {
	return In("Worker ids and Snowflake ids",
		Optional(Named("id-pool", "default", "the pool of /id/snowflake, of which the service leases a worker id at its start; empty: none",
			&c.Server.IDPool)),
		poolNames("stamp-pools", "more pools of which the service leases a worker id at its start, as it does of --id-pool; empty: none",
			&c.Server.StampPools),
		Optional(Named("identity", "", "how the service calls itself where it leases worker ids; empty: as the host is called",
			&c.Server.Identity)),
		poolPins(&c.Server.Workers.Pools),
		Optional(Choice("new-pools", "", []workerlease.NewPools{workerlease.NewPoolsWait, workerlease.NewPoolsTrust},
			"a worker-id pool that the store knows nothing of: wait until no window can be open that it may have "+
				"forgotten, or trust that it is new; empty: trust on the "+
				"embedded store and with --dev, else wait", &c.Server.Workers.NewPools)),
		Optional(Span("worker-longest-ttl", Unsaid, workerlease.MinTTL, workerlease.MaxTTL, fmt.Sprintf("the longest TTL of a worker-id "+
			"pool: a longer one is refused, and once Redis may have lost a pool nothing is granted for that long and --clock-skew; alike "+
			"in all that use a pool; empty: %v, where unknown pools are trusted %v", workerlease.DefaultTTL, workerlease.MaxTTL),
			&c.Server.Workers.LongestTTL)),
		Span("worker-cooldown", "0s", 0, workerlease.MaxTTL, "how long a worker id rests after its lease before another holder gets it",
			&c.Server.Workers.Cooldown),
		Span("clock-skew", "1s", time.Millisecond, time.Minute, "how far the clocks of two Redis servers that can be master may differ; "+
			"alike in all that use a pool", &c.Server.Workers.Skew),
	)
}

func segmentSettings(c *Service) []*Setting {
	return In("Segments, opaque ids, and the APIs of Leaf and tinyid",
		segmentSource(&c.SegmentSource),
		Choice("segment-table", segment.DefaultLeafTable, []string{segment.DefaultLeafTable, segment.DefaultSequenceTable},
			"the table there: leaf_alloc, as Leaf has it, or segment_sequence, whose rows take the database's next number", &c.SegmentTable),
		Span("segment-period", spelled(segment.DefaultPeriod), time.Second, 720*time.Hour, "how long one fetched range of /id/segment "+
			"should last: how many ids are fetched follows the demand", &c.Server.Segments.Period),
		Number("segment-step", strconv.Itoa(server.DefaultSegmentStep), 1, counter.MaxBy, "ids",
			"ids that are fetched at once at least, where the source is redis; a table says so itself", &c.Server.SegmentStep),
		segmentCreate(&c.Server.KnownSegments),
		Keyring("opaque-keys", "keys that make ids opaque (format=opaque), the newest first: id:base64 of 32 bytes; the newest writes, "+
			"all read; none: no id is opaque", &c.Server.OpaqueKeys),
		leafModes(&c.Server.Leaf),
		Named("leaf-pool", "leaf", "the pool of the ids of /api/snowflake, which has Leaf's layout and epoch", &c.Server.Leaf.Pool),
		tinyidTokens(&c.Server.TinyidTokens),
	)
}

func lockSettings(c *Service) []*Setting {
	return In("Locks",
		Choice("lock-after-loss", lock.AfterLossGrant, []lock.AfterLoss{lock.AfterLossGrant, lock.AfterLossWait}, "once Redis may have "+
			"lost leases of locks that are still open: grant, or wait until all of them have ended; alike in all that use a lock",
			&c.Server.Locks.AfterLoss),
		Optional(Span("lock-longest-ttl", Unsaid, lock.MinTTL, lock.MaxTTL, fmt.Sprintf("the longest TTL of a lock, which is how long "+
			"such a wait takes; alike in all that use a lock; empty: %v, without the wait %v", lock.DefaultTTL, lock.MaxTTL),
			&c.Server.Locks.LongestTTL)),
		Number("lock-waits", strconv.Itoa(server.DefaultLockWaits), 1, 1_000_000, "requests",
			"requests that wait for locks at once, of which each principal has a share", &c.Server.LockWaits),
	)
}

func stopSettings(c *Service) []*Setting {
	return In("Readiness and stop",
		Choice("ready-when", server.ReadyWithIDs, []server.ReadyWhen{server.ReadyWithIDs, server.ReadyWithStore}, "what makes /readyz "+
			"say 200. ids: the store works, and of no pool of --id-pool and --stamp-pools another process has a worker id while this one "+
			"has none, so that a rolling deploy keeps those that can stamp; store: the store works", &c.Server.ReadyWhen),
		Span("drain-delay", "0s", 0, time.Hour, "at a stop: how long /readyz says so before the listener closes", &c.Server.DrainDelay),
		Span("stop-timeout", "0s", 0, 25*time.Hour, "at a stop: how long requests under way may take to end; 0: as long as they may "+
			"take at all (--request-timeout, at the gateway the longest upstream_timeout_ms of its routes), and 5 s, so that none is cut off",
			&c.Server.StopTimeout),
	)
}

func logSettings(c *Service) []*Setting {
	return In("Log and traces",
		Choice("access-log", requestlog.NoHealth, []string{requestlog.All, requestlog.NoHealth, requestlog.None},
			"which requests have a line in the log: all, none, or all but those for /livez, /readyz and /metrics", &c.Server.AccessLog),
		Choice("audit-log", audit.Names, []string{audit.Names, audit.NoNames, audit.None}, "lines of the log that say who changed "+
			"something or was refused: with the names of counters, pools and locks, without them, or none", &c.Server.AuditLog),
		Choice("log-format", "text", []string{"text", "json"}, "how the log is written", &c.LogFormat),
		Hot(Level("log-level", "info", "what the log holds", &c.LogLevel)),
		Checked("trace-endpoint", "URL", "where traces go: the base URL of an OpenTelemetry collector that takes OTLP over HTTP, such "+
			"as http://127.0.0.1:4318; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says, and nowhere without it", tracing.CheckEndpoint, &c.TraceEndpoint),
		part("trace-sample", "the part of the traces that is kept, such as 0.1; 0 keeps none. A trace that began elsewhere is kept if "+
			"it is kept there and its caller has shown a key or a certificate; from others it counts as one that begins here. Empty: as "+
			"OTEL_TRACES_SAMPLER says, else all", &c.TraceSample),
	)
}

func demoSettings(c *Service) []*Setting {
	return In("Demo",
		Toggle("dev", "turns on the demo: POST and GET /payments, without --redis on a store in memory", &c.Server.Dev),
		Span("payment-delay", "0s", 0, time.Hour, "demo: how long a payment takes after its charge", &c.Server.PaymentDelay),
		Span("payment-lease", "30s", 100*time.Millisecond, 24*time.Hour, "demo: how long an attempt may be silent before it is in doubt",
			&c.Server.PaymentLease),
	)
}

// derive sets unset values that follow from other settings.
func (c *Service) derive() {
	c.Server.Locks.Skew = c.Server.Workers.Skew
	if c.Server.Dev && c.Store.URL == "" {
		c.Store.URL = "embedded:"
	}
	if c.Server.Workers.NewPools == "" {
		c.Server.Workers.NewPools = workerlease.NewPoolsWait
		if c.Server.Dev || c.OnEmbedded() {
			c.Server.Workers.NewPools = workerlease.NewPoolsTrust
		}
	}
	if c.Server.Identity == "" {
		host, _ := os.Hostname() // without a name it leases without an identity
		c.Server.Identity = NameOf(host)
	}
}

// OnEmbedded reports whether the store is the embedded one.
func (c *Service) OnEmbedded() bool { return c.Store.URL == "" || c.Store.URL == "embedded:" }

var unnamed = lazyregexp.New(`[^A-Za-z0-9._:~@-]+`)

// NameOf makes a name as the HTTP interface takes it of a text.
func NameOf(text string) string {
	text = unnamed().ReplaceAllString(text, "-")
	return text[:min(len(text), 200)]
}
