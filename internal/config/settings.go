package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// Service is what the service is set to, after flags, environment and file.
type Service struct {
	Redis          string
	Listen         string
	AdminListen    string
	Dev            bool
	Console        string
	Ack            int64
	Restarts       string
	DataDir        string
	Prefix         string
	MaxKeys        int64
	MaxBytes       int64
	StoreTimeout   time.Duration
	RequestTimeout time.Duration
	DrainDelay     time.Duration
	StopTimeout    time.Duration
	MaxBody        int64
	IdleTimeout    time.Duration
	MaxConnections int64
	MaxPerAddress  int64

	MaxBytesInFlight int64 // 0 = unsaid

	NewPools       string
	ClockSkew      time.Duration
	WorkerCooldown time.Duration
	WorkerLongest  time.Duration // 0 = unsaid
	Pools          map[string]workerlease.Pin
	IDPool         string
	StampPools     []string
	ReadyWhen      string
	Identity       string

	CounterAfterLoss string
	CounterMargin    int64
	CounterHoldOff   time.Duration

	SegmentSource string
	SegmentPeriod time.Duration
	SegmentStep   int64
	SegmentCreate bool
	OpaqueKeys    []idempotency.Key

	Leaf         server.LeafDoor
	TinyidTokens []server.TinyidToken

	LockAfterLoss  string
	LockLongestTTL time.Duration
	LockWaits      int64

	Access        string
	AccessKeys    []access.Record
	AccessStore   bool
	Rate          access.Rate
	Burst         int64
	CORSOrigins   []string
	AllowedHosts  []string
	TLSCert       string
	TLSKey        string
	TLSClientCA   string
	TLSClientAuth string
	Insecure      bool

	PrincipalHeaders []string
	QuotaOperations  int64
	QuotaBytes       int64
	TokenKeys        []idempotency.Key
	AnswerKeys       []idempotency.Key

	TraceEndpoint string
	TraceSample   *float64 // nil = unsaid

	AccessLog    string
	AuditLog     string
	LogLevel     slog.Level
	LogFormat    string
	PaymentDelay time.Duration
	PaymentLease time.Duration
}

// Setting is one line of the configuration: a flag, its environment variable and its key in the
// file.
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
	return "COATCHECK_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
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

// defaultPrincipal is the header that tells who is asking where nothing is said.
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
		StoreURL(Text("redis", "embedded:", "URL", "the store: embedded: | redis:// | rediss:// | unix:// | redis+sentinel://h1,h2/<master> | redis+cluster://h1,h2", &c.Redis)),
		Number("ack", "0", 0, 100, "replicas", "replicas that must confirm every write before it counts", &c.Ack),
		Choice("restarts", string(redisstore.WaitAfterRestart), []string{string(redisstore.WaitAfterRestart), string(redisstore.TrustRestarts)}, "a restart or a failover of Redis: wait, since it may have lost what it had confirmed, or trust that it has all of it. Trust needs appendfsync always, --ack of all replicas, and no start from a copy or a backup while processes of the old one live; alike in all that use a prefix", &c.Restarts),
		Text("prefix", redisstore.DefaultPrefix, "text", "before every key in Redis", &c.Prefix),
		Optional(Span("store-timeout", Unsaid, 10*time.Millisecond, time.Minute, fmt.Sprintf("how long one call to the store may take; empty: %v, on the embedded store %v", redisstore.DefaultTimeout, redisstore.EmbeddedTimeout), &c.StoreTimeout)),
		Text("data-dir", "", "directory", "embedded store: where it keeps its data; empty keeps nothing", &c.DataDir),
		Number("max-keys", strconv.Itoa(embedded.DefaultMaxKeys), 1, 100_000_000, "keys", "embedded store: how many keys it may hold", &c.MaxKeys),
		Number("max-bytes", strconv.Itoa(embedded.DefaultMaxBytes), 1<<20, 1<<40, "bytes", "embedded store: how much memory what it holds may take", &c.MaxBytes),
	)
}

func listenSettings(c *Service) []*Setting {
	return In("Listening, and what clients may take",
		Address("listen", "127.0.0.1:8080", "where the service listens; port 0 takes a free one", &c.Listen),
		adminSetting(c),
		Choice("console", string(server.ConsoleWrite), []string{string(server.ConsoleRead), string(server.ConsoleWrite), string(server.ConsoleOff)}, "the web page at /console/: write has buttons for what its user may do, read has none that change anything, off is no page", &c.Console),
		Span("request-timeout", spelled(server.DefaultRequestTimeout), time.Second, 24*time.Hour, "how long a request may take", &c.RequestTimeout),
		Span("idle-timeout", spelled(frontdoor.DefaultIdleTimeout), time.Second, time.Hour, "how long a client's connection is kept without a request", &c.IdleTimeout),
		Number("max-body", strconv.Itoa(server.DefaultMaxBody), 1024, 1<<30, "bytes", "the largest body of a request", &c.MaxBody),
		Number("max-connections", strconv.Itoa(frontdoor.DefaultMaxConnections), 1, 1_000_000, "connections", "clients' connections that are open at once; beyond it, the one that is unused for longest is closed for a new one. The process needs a file descriptor for each (ulimit -n), and some more", &c.MaxConnections),
		Number("max-connections-per-address", "0", 0, 1_000_000, "connections", "connections of one address that are open at once, or of one /64 of IPv6; more are closed as they come. Behind a proxy all come from its address; 0: as many as there may be in all", &c.MaxPerAddress),
		Optional(Number("max-bytes-in-flight", Unsaid, 1<<20, 1<<40, "bytes", "memory that requests under way may take, as far as it is counted: headers and bodies twice, and answers that wait for their clients. Beyond it requests are answered 503 overloaded; empty: a quarter of GOMEMLIMIT, else 256 MiB", &c.MaxBytesInFlight)),
	)
}

func callerSettings(c *Service) []*Setting {
	return In("Who may do what",
		Hot(Text("access", "", "file", "who may do what: a YAML file of API keys and client certificates, see docs/access.md. It is read again when it changes, and on SIGHUP", &c.Access)),
		Hot(recordsSetting("access-keys", "more API keys: id:role:principal:names:sha256, where names are separated by |, and none are all", &c.AccessKeys)),
		Toggle("access-store", "API keys are those, too, that coatcheck key add has put into Redis; they are read again every 5 s, and on SIGHUP", &c.AccessStore),
		Hot(Rate("rate", "how often each principal may ask, counted in Redis for all services together, such as 100/s; a key's own rate counts before it; empty: as often as they like", &c.Rate)),
		Hot(Optional(Number("burst", Unsaid, 1, 1_000_000, "requests", "how many requests beyond that rate may come at once; empty: what it gives in a second, and one at least", &c.Burst))),
		Headers("principal-headers", defaultPrincipal, "request headers that tell who is asking: the keys and tokens of two of them never meet; none: all callers are the same", &c.PrincipalHeaders),
		Hot(origins("cors-origins", "origins whose pages may ask from a browser, such as https://shop.example; empty: none", &c.CORSOrigins)),
		Hot(HostNames("allowed-hosts", "names under which clients ask, beside every address and localhost, such as coatcheck.internal or *.example.com; * is every name; empty: where keys are asked for every name, else no other", &c.AllowedHosts)),
		Hot(Text("tls-cert", "", "file", "certificates of the service in PEM, its own first; empty: no TLS. Read again when it changes, and on SIGHUP", &c.TLSCert)),
		Hot(Text("tls-key", "", "file", "the key of that certificate in PEM", &c.TLSKey)),
		Hot(Text("tls-client-ca", "", "file", "authorities in PEM whose client certificates are taken; which is whose says --access", &c.TLSClientCA)),
		Hot(Choice("tls-client-auth", requestCertificate, []string{requestCertificate, RequireCertificate}, "whether every client has to show such a certificate", &c.TLSClientAuth)),
		Toggle("insecure", "lets other machines reach the service without TLS, or without being asked who they are", &c.Insecure),
	)
}

func tokenSettings(c *Service) []*Setting {
	return In("Tokens and recorded answers",
		Number("quota-operations", "0", 0, 1_000_000_000, "operations", "tokens and operations of one principal that may be kept at a time, as this process counts them; one more is refused with 429; 0: as many as Redis takes", &c.QuotaOperations),
		Number("quota-bytes", "0", 0, 1<<50, "bytes", "memory of Redis that these may take; 0: as much as there is", &c.QuotaBytes),
		Keyring("token-keys", "keys that sign issued tokens, the newest first: id:base64 of 32 bytes; none: tokens are not signed", &c.TokenKeys),
		Keyring("answer-keys", "keys that encrypt stored answers, the newest first: id:base64 of 32 bytes; none: stored as they are", &c.AnswerKeys),
	)
}

func afterLossSettings(c *Service) []*Setting {
	return In("Counters",
		Choice("counter-after-loss", string(counter.MovePast), []string{string(counter.MovePast), string(counter.Refuse)}, "a counter that has gone back, or may have, since Redis has lost what it had confirmed: move it past every value that can have been handed out, or refuse it until it is set; what follows has to be alike in all that use a counter", &c.CounterAfterLoss),
		Optional(Number("counter-margin", Unsaid, 1, counter.MaxMargin, "values", fmt.Sprintf("how far such a counter moves; empty: %d, with --ack %d", counter.DefaultMargin, counter.DefaultAckMargin), &c.CounterMargin)),
		Span("counter-hold-off", spelled(counter.DefaultHoldOff), time.Second, time.Minute, "after a loss of everything: how long nothing is added, while all services say what they have seen", &c.CounterHoldOff),
	)
}

func workerSettings(c *Service) []*Setting {
	return In("Worker ids and Snowflake ids",
		Optional(Named("id-pool", "default", "the pool of /id/snowflake, of which the service leases a worker id at its start; empty: none", &c.IDPool)),
		poolNames("stamp-pools", "more pools of which the service leases a worker id at its start, as it does of --id-pool; empty: none", &c.StampPools),
		Optional(Named("identity", "", "how the service calls itself where it leases worker ids; empty: as the host is called", &c.Identity)),
		poolPins(&c.Pools),
		Optional(Choice("new-pools", "", []string{"wait", "trust"}, "a worker-id pool that the store knows nothing of: wait until no window can be open that it may have forgotten, or trust that it is new; empty: trust on the embedded store and with --dev, else wait", &c.NewPools)),
		Optional(Span("worker-longest-ttl", Unsaid, workerlease.MinTTL, workerlease.MaxTTL, fmt.Sprintf("the longest TTL of a worker-id pool: a longer one is refused, and once Redis may have lost a pool nothing is granted for that long and --clock-skew; alike in all that use a pool; empty: %v, where unknown pools are trusted %v", workerlease.DefaultTTL, workerlease.MaxTTL), &c.WorkerLongest)),
		Span("worker-cooldown", "0s", 0, workerlease.MaxTTL, "how long a worker id rests after its lease before another holder gets it", &c.WorkerCooldown),
		Span("clock-skew", spelled(workerlease.DefaultSkew), time.Millisecond, time.Minute, "how far the clocks of two Redis servers that can be master may differ; alike in all that use a pool", &c.ClockSkew),
	)
}

func segmentSettings(c *Service) []*Setting {
	return In("Segments, opaque ids, and the APIs of Leaf and tinyid",
		segmentSource(&c.SegmentSource),
		Span("segment-period", spelled(segment.DefaultPeriod), time.Second, 720*time.Hour, "how long one fetched range of /id/segment should last: how many ids are fetched follows the demand", &c.SegmentPeriod),
		Number("segment-step", strconv.Itoa(server.DefaultSegmentStep), 1, counter.MaxBy, "ids", "ids that are fetched at once at least, where the source is redis; a table says so itself", &c.SegmentStep),
		Toggled("segment-create", "true", "a tag that Redis does not have begins at 1; false: it is not found", &c.SegmentCreate),
		Keyring("opaque-key", "keys that make ids opaque (format=opaque), the newest first: id:base64 of 32 bytes; the newest writes, all read; none: no id is opaque", &c.OpaqueKeys),
		leafModes(&c.Leaf),
		Named("leaf-pool", "leaf", "the pool of the ids of /api/snowflake, which has Leaf's layout and epoch", &c.Leaf.Pool),
		tinyidTokens(&c.TinyidTokens),
	)
}

func lockSettings(c *Service) []*Setting {
	return In("Locks",
		Choice("lock-after-loss", string(lock.GrantAfterLoss), []string{string(lock.GrantAfterLoss), string(lock.WaitAfterLoss)}, "once Redis may have lost leases of locks that are still open: grant, or wait until all of them have ended; alike in all that use a lock", &c.LockAfterLoss),
		Optional(Span("lock-longest-ttl", Unsaid, lock.MinTTL, lock.MaxTTL, fmt.Sprintf("the longest TTL of a lock, which is how long such a wait takes; alike in all that use a lock; empty: %v, without the wait %v", lock.DefaultTTL, lock.MaxTTL), &c.LockLongestTTL)),
		Number("lock-waits", strconv.Itoa(server.DefaultLockWaits), 1, 1_000_000, "requests", "requests that wait for locks at once, of which each principal has a share", &c.LockWaits),
	)
}

func stopSettings(c *Service) []*Setting {
	return In("Readiness and stop",
		Choice("ready-when", string(server.ReadyWithIDs), []string{string(server.ReadyWithIDs), string(server.ReadyWithStore)}, "what makes /readyz say 200. ids: the store works, and of no pool of --id-pool and --stamp-pools another process has a worker id while this one has none, so that a rolling deploy keeps those that can stamp; store: the store works", &c.ReadyWhen),
		Span("drain-delay", "0s", 0, time.Hour, "at a stop: how long /readyz says so before the listener closes", &c.DrainDelay),
		Span("stop-timeout", "0s", 0, 25*time.Hour, "at a stop: how long requests under way may take to end; 0: as long as they may take at all (--request-timeout, at the gateway the longest upstream_timeout_ms of its routes), and 5 s, so that none is cut off", &c.StopTimeout),
	)
}

func logSettings(c *Service) []*Setting {
	return In("Log and traces",
		Choice("access-log", requestlog.NoHealth, []string{requestlog.All, requestlog.NoHealth, requestlog.None}, "which requests have a line in the log: all, none, or all but those for /livez, /readyz and /metrics", &c.AccessLog),
		Choice("audit-log", audit.Names, []string{audit.Names, audit.NoNames, audit.None}, "lines of the log that say who changed something or was refused: with the names of counters, pools and locks, without them, or none", &c.AuditLog),
		Choice("log-format", "text", []string{"text", "json"}, "how the log is written", &c.LogFormat),
		Hot(Level("log-level", "info", "debug, info, warn or error: what the log holds", &c.LogLevel)),
		collector("trace-endpoint", "where traces go: the base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says, and nowhere without it", &c.TraceEndpoint),
		part("trace-sample", "the part of the traces that is kept, such as 0.1; 0 keeps none. A trace that began elsewhere is kept if it is kept there and its caller has shown a key or a certificate; from others it counts as one that begins here. Empty: as OTEL_TRACES_SAMPLER says, else all", &c.TraceSample),
	)
}

func demoSettings(c *Service) []*Setting {
	return In("Demo",
		Toggle("dev", "turns on the demo: POST and GET /payments", &c.Dev),
		Span("payment-delay", "0s", 0, time.Hour, "demo: how long a payment takes after its charge", &c.PaymentDelay),
		Span("payment-lease", "30s", 100*time.Millisecond, 24*time.Hour, "demo: how long an attempt may be silent before it is in doubt", &c.PaymentLease),
	)
}
