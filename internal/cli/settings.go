package cli

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/audit"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/requestlog"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

// config is what the service is set to, after flags, environment and file.
type config struct {
	redis          string
	listen         string
	adminListen    string
	dev            bool
	console        string
	ack            int64
	restarts       string
	dataDir        string
	prefix         string
	maxKeys        int64
	maxBytes       int64
	storeTimeout   time.Duration
	requestTimeout time.Duration
	drainDelay     time.Duration
	stopTimeout    time.Duration
	maxBody        int64
	idleTimeout    time.Duration
	maxConnections int64
	maxPerAddress  int64

	maxBytesInFlight int64 // 0 = unsaid

	newPools       string
	clockSkew      time.Duration
	workerCooldown time.Duration
	workerLongest  time.Duration // 0 = unsaid
	pools          map[string]workerlease.Pin
	idPool         string
	stampPools     []string
	readyWhen      string
	identity       string

	counterAfterLoss string
	counterMargin    int64
	counterHoldOff   time.Duration

	segmentSource string
	segmentPeriod time.Duration
	segmentStep   int64
	segmentCreate bool
	opaqueKeys    []idempotency.Key

	leaf         server.LeafDoor
	tinyidTokens []server.TinyidToken

	lockAfterLoss  string
	lockLongestTTL time.Duration
	lockWaits      int64

	access        string
	accessKeys    []access.Record
	accessStore   bool
	rate          access.Rate
	burst         int64
	corsOrigins   []string
	allowedHosts  []string
	tlsCert       string
	tlsKey        string
	tlsClientCA   string
	tlsClientAuth string
	insecure      bool

	principalHeaders []string
	quotaOperations  int64
	quotaBytes       int64
	tokenKeys        []idempotency.Key
	answerKeys       []idempotency.Key

	traceEndpoint string
	traceSample   *float64 // nil = unsaid

	accessLog    string
	auditLog     string
	logLevel     slog.Level
	logFormat    string
	paymentDelay time.Duration
	paymentLease time.Duration
}

// setting is one line of the configuration: a flag, its environment variable and its key in the
// file.
type setting struct {
	name  string // of the flag and in the file
	group string // the heading that it stands under; "" = none
	value string // the default, then what was found
	unit  string
	help  string
	parse func(string) error

	unset  string              // the default
	source string              // default, file, environment or flag
	line   int                 // in the file
	hot    bool                // a new value is taken on SIGHUP
	redact func(string) string // hides what is secret in a value; nil = nothing is
	nested bool                // in the file it is a map
	toggle bool                // a flag that needs no value

	choices []string // the values that there are; nil = others
	kind    string   // what help says that it takes; "" = the unit
}

// variable is the setting's environment variable.
func (s *setting) variable() string {
	return "COATCHECK_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settings is the table of all there is, bound to a config.
func settings(c *config) []*setting {
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

// in puts settings under a heading, in help and in docs/configuration.md.
func in(group string, table ...*setting) []*setting {
	for _, s := range table {
		s.group = group
	}
	return table
}

func redisSettings(c *config) []*setting {
	return in("Store",
		storeURL(text("redis", "embedded:", "URL", "the store: embedded: | redis:// | rediss:// | unix:// | redis+sentinel://h1,h2/<master> | redis+cluster://h1,h2", &c.redis)),
		number("ack", "0", 0, 100, "replicas", "replicas that must confirm every write before it counts", &c.ack),
		choice("restarts", string(redisstore.WaitAfterRestart), []string{string(redisstore.WaitAfterRestart), string(redisstore.TrustRestarts)}, "a restart or a failover of Redis: wait, since it may have lost what it had confirmed, or trust that it has all of it. Trust needs appendfsync always, --ack of all replicas, and no start from a copy or a backup while processes of the old one live; alike in all that use a prefix", &c.restarts),
		text("prefix", "coatcheck:", "text", "before every key in Redis", &c.prefix),
		optional(span("store-timeout", unsaid, 10*time.Millisecond, time.Minute, fmt.Sprintf("how long one call to the store may take; empty: %v, on the embedded store %v", redisstore.DefaultTimeout, redisstore.EmbeddedTimeout), &c.storeTimeout)),
		text("data-dir", "", "directory", "embedded store: where it keeps its data; empty keeps nothing", &c.dataDir),
		number("max-keys", "1000000", 1, 100_000_000, "keys", "embedded store: how many keys it may hold", &c.maxKeys),
		number("max-bytes", "268435456", 1<<20, 1<<40, "bytes", "embedded store: how much memory what it holds may take", &c.maxBytes),
	)
}

func listenSettings(c *config) []*setting {
	return in("Listening, and what clients may take",
		address("listen", "127.0.0.1:8080", "where the service listens; port 0 takes a free one", &c.listen),
		adminSetting(c),
		choice("console", string(server.ConsoleWrite), []string{string(server.ConsoleRead), string(server.ConsoleWrite), string(server.ConsoleOff)}, "the web page at /console/: write has buttons for what its user may do, read has none that change anything, off is no page", &c.console),
		span("request-timeout", "30s", time.Second, 24*time.Hour, "how long a request may take", &c.requestTimeout),
		span("idle-timeout", "2m", time.Second, time.Hour, "how long a client's connection is kept without a request", &c.idleTimeout),
		number("max-body", "1048576", 1024, 1<<30, "bytes", "the largest body of a request", &c.maxBody),
		number("max-connections", strconv.Itoa(frontdoor.DefaultMaxConnections), 1, 1_000_000, "connections", "clients' connections that are open at once; beyond it, the one that is unused for longest is closed for a new one. The process needs a file descriptor for each (ulimit -n), and some more", &c.maxConnections),
		number("max-connections-per-address", "0", 0, 1_000_000, "connections", "connections of one address that are open at once, or of one /64 of IPv6; more are closed as they come. Behind a proxy all come from its address; 0: as many as there may be in all", &c.maxPerAddress),
		optional(number("max-bytes-in-flight", unsaid, 1<<20, 1<<40, "bytes", "memory that requests under way may take, as far as it is counted: headers and bodies twice, and answers that wait for their clients. Beyond it requests are answered 503 overloaded; empty: a quarter of GOMEMLIMIT, else 256 MiB", &c.maxBytesInFlight)),
	)
}

func callerSettings(c *config) []*setting {
	return in("Who may do what",
		hot(text("access", "", "file", "who may do what: a YAML file of API keys and client certificates, see docs/access.md. It is read again when it changes, and on SIGHUP", &c.access)),
		hot(recordsSetting("access-keys", "more API keys: id:role:principal:names:sha256, where names are separated by |, and none are all", &c.accessKeys)),
		toggle("access-store", "API keys are those, too, that coatcheck key add has put into Redis; they are read again every 5 s, and on SIGHUP", &c.accessStore),
		hot(rateSetting("rate", "how often each principal may ask, counted in Redis for all services together, such as 100/s; a key's own rate counts before it; empty: as often as they like", &c.rate)),
		hot(optional(number("burst", unsaid, 1, 1_000_000, "requests", "how many requests beyond that rate may come at once; empty: what it gives in a second, and one at least", &c.burst))),
		headers("principal-headers", "Authorization", "request headers that tell who is asking: the keys and tokens of two of them never meet; none: everybody is the same", &c.principalHeaders),
		hot(origins("cors-origins", "origins whose pages may ask from a browser, such as https://shop.example; empty: none", &c.corsOrigins)),
		hot(hostNames("allowed-hosts", "names under which clients ask, beside every address and localhost, such as coatcheck.internal or *.example.com; * is every name; empty: where keys are asked for every name, else no other", &c.allowedHosts)),
		hot(text("tls-cert", "", "file", "certificates of the service in PEM, its own first; empty: no TLS. Read again when it changes, and on SIGHUP", &c.tlsCert)),
		hot(text("tls-key", "", "file", "the key of that certificate in PEM", &c.tlsKey)),
		hot(text("tls-client-ca", "", "file", "authorities in PEM whose client certificates are taken; which is whose says --access", &c.tlsClientCA)),
		hot(choice("tls-client-auth", requestCertificate, []string{requestCertificate, requireCertificate}, "whether every client has to show such a certificate", &c.tlsClientAuth)),
		toggle("insecure", "lets other machines reach the service without TLS, or without being asked who they are", &c.insecure),
	)
}

func tokenSettings(c *config) []*setting {
	return in("Tokens and recorded answers",
		number("quota-operations", "0", 0, 1_000_000_000, "operations", "tokens and operations of one principal that may be kept at a time, as this process counts them; one more is refused with 429; 0: as many as Redis takes", &c.quotaOperations),
		number("quota-bytes", "0", 0, 1<<50, "bytes", "memory of Redis that these may take; 0: as much as there is", &c.quotaBytes),
		keyring("token-keys", "keys that sign issued tokens, the newest first: id:base64 of 32 bytes; none: tokens are not signed", &c.tokenKeys),
		keyring("answer-keys", "keys that encrypt stored answers, the newest first: id:base64 of 32 bytes; none: stored as they are", &c.answerKeys),
	)
}

func afterLossSettings(c *config) []*setting {
	return in("Counters",
		choice("counter-after-loss", string(counter.MovePast), []string{string(counter.MovePast), string(counter.Refuse)}, "a counter that has gone back, or may have, since Redis has lost what it had confirmed: move it past every value that can have been handed out, or refuse it until somebody sets it; what follows has to be alike in all that use a counter", &c.counterAfterLoss),
		optional(number("counter-margin", unsaid, 1, counter.MaxMargin, "values", fmt.Sprintf("how far such a counter moves; empty: %d, with --ack %d", counter.DefaultMargin, counter.DefaultAckMargin), &c.counterMargin)),
		span("counter-hold-off", "5s", time.Second, time.Minute, "after a loss of everything: how long nothing is added, while all services say what they have seen", &c.counterHoldOff),
	)
}

func workerSettings(c *config) []*setting {
	return in("Worker ids and Snowflake ids",
		optional(named("id-pool", "default", "the pool of /id/snowflake, of which the service leases a worker id at its start; empty: none", &c.idPool)),
		poolNames("stamp-pools", "more pools of which the service leases a worker id at its start, as it does of --id-pool; empty: none", &c.stampPools),
		optional(named("identity", "", "how the service calls itself where it leases worker ids; empty: as the host is called", &c.identity)),
		poolPins(&c.pools),
		optional(choice("new-pools", "", []string{"wait", "trust"}, "a worker-id pool that the store knows nothing of: wait until no window can be open that it may have forgotten, or trust that it is new; empty: trust on the embedded store and with --dev, else wait", &c.newPools)),
		optional(span("worker-longest-ttl", unsaid, workerlease.MinTTL, workerlease.MaxTTL, fmt.Sprintf("the longest TTL of a worker-id pool: a longer one is refused, and once Redis may have lost a pool nothing is granted for that long and --clock-skew; alike in all that use a pool; empty: %v, where unknown pools are trusted %v", workerlease.DefaultTTL, workerlease.MaxTTL), &c.workerLongest)),
		span("worker-cooldown", "0s", 0, workerlease.MaxTTL, "how long a worker id rests after its lease before another holder gets it", &c.workerCooldown),
		span("clock-skew", "1s", time.Millisecond, time.Minute, "how far the clocks of two Redis servers that can be master may differ; alike in all that use a pool", &c.clockSkew),
	)
}

func segmentSettings(c *config) []*setting {
	return in("Segments, opaque ids, and the APIs of Leaf and tinyid",
		segmentSource(&c.segmentSource),
		span("segment-period", "15m", time.Second, 720*time.Hour, "how long one fetched range of /id/segment should last: how many ids are fetched follows the demand", &c.segmentPeriod),
		number("segment-step", "1000", 1, counter.MaxBy, "ids", "ids that are fetched at once at least, where the source is redis; a table says so itself", &c.segmentStep),
		toggled("segment-create", "true", "a tag that Redis does not have begins at 1; false: it is not found", &c.segmentCreate),
		keyring("opaque-key", "keys that make ids opaque (format=opaque), the newest first: id:base64 of 32 bytes; the newest writes, all read; none: no id is opaque", &c.opaqueKeys),
		leafModes(&c.leaf),
		named("leaf-pool", "leaf", "the pool of the ids of /api/snowflake, which has Leaf's layout and epoch", &c.leaf.Pool),
		tinyidTokens(&c.tinyidTokens),
	)
}

func lockSettings(c *config) []*setting {
	return in("Locks",
		choice("lock-after-loss", string(lock.GrantAfterLoss), []string{string(lock.GrantAfterLoss), string(lock.WaitAfterLoss)}, "once Redis may have lost leases of locks that are still open: grant, or wait until all of them have ended; alike in all that use a lock", &c.lockAfterLoss),
		optional(span("lock-longest-ttl", unsaid, lock.MinTTL, lock.MaxTTL, fmt.Sprintf("the longest TTL of a lock, which is how long such a wait takes; alike in all that use a lock; empty: %v, without the wait %v", lock.DefaultTTL, lock.MaxTTL), &c.lockLongestTTL)),
		number("lock-waits", strconv.Itoa(server.DefaultLockWaits), 1, 1_000_000, "requests", "requests that wait for locks at once, of which each principal has a share", &c.lockWaits),
	)
}

func stopSettings(c *config) []*setting {
	return in("Readiness and stop",
		choice("ready-when", string(server.ReadyWithIDs), []string{string(server.ReadyWithIDs), string(server.ReadyWithStore)}, "what makes /readyz say 200. ids: the store works, and of no pool of --id-pool and --stamp-pools another process has a worker id while this one has none, so that a rolling deploy keeps those that can stamp; store: the store works", &c.readyWhen),
		span("drain-delay", "0s", 0, time.Hour, "at a stop: how long /readyz says so before the listener closes", &c.drainDelay),
		span("stop-timeout", "0s", 0, 25*time.Hour, "at a stop: how long requests under way may take to end; 0: as long as they may take at all (--request-timeout, at the gateway the longest upstream_timeout_ms of its routes), and 5 s, so that none is cut off", &c.stopTimeout),
	)
}

func logSettings(c *config) []*setting {
	return in("Log and traces",
		choice("access-log", requestlog.NoHealth, []string{requestlog.All, requestlog.NoHealth, requestlog.None}, "which requests have a line in the log: all, none, or all but those for /livez, /readyz and /metrics", &c.accessLog),
		choice("audit-log", audit.Names, []string{audit.Names, audit.NoNames, audit.None}, "lines of the log that say who changed something or was refused: with the names of counters, pools and locks, without them, or none", &c.auditLog),
		choice("log-format", "text", []string{"text", "json"}, "how the log is written", &c.logFormat),
		hot(level("log-level", "info", "debug, info, warn or error: what the log holds", &c.logLevel)),
		collector("trace-endpoint", "where traces go: the base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318; empty: as OTEL_EXPORTER_OTLP_ENDPOINT says, and nowhere without it", &c.traceEndpoint),
		part("trace-sample", "the part of the traces that is kept, such as 0.1; 0 keeps none. A trace that began elsewhere is kept if it is kept there and its caller has shown a key or a certificate; from others it counts as one that begins here. Empty: as OTEL_TRACES_SAMPLER says, else all", &c.traceSample),
	)
}

func demoSettings(c *config) []*setting {
	return in("Demo",
		toggle("dev", "turns on the demo: POST and GET /payments", &c.dev),
		span("payment-delay", "0s", 0, time.Hour, "demo: how long a payment takes after its charge", &c.paymentDelay),
		span("payment-lease", "30s", 100*time.Millisecond, 24*time.Hour, "demo: how long an attempt may be silent before it is in doubt", &c.paymentLease),
	)
}
