package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/driver"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/redisconn"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// Mode is the kind of Redis behind a store.
type Mode string

// The kinds of Redis that a store's URL can name.
const (
	ModeEmbedded   Mode = redisconn.Embedded
	ModeStandalone Mode = redisconn.Standalone
	ModeSentinel   Mode = redisconn.Sentinel
	ModeCluster    Mode = redisconn.Cluster
)

// The embedded store runs in the process and loses no reply, so a slow call means a busy machine,
// and to give it up would leave an outcome unknown for nothing.
const (
	defaultTimeout  = time.Second
	embeddedTimeout = 30 * time.Second
)

// Config is the Redis to use, and how. The zero value of each field but URL means its default.
type Config struct {
	// URL names the Redis: embedded: (in a program that imports package embedded) |
	// redis://[user:password@]host[:6379][/db] | rediss://… (TLS) |
	// unix://[user:password@]/path/to.sock[?db=n] |
	// redis+sentinel://[user:password@]h1[:26379],h2…/master[/db] |
	// redis+cluster://[user:password@]h1[:6379],h2…. Query parameters: pool_size; tls=true,
	// sentinel_username and sentinel_password for Sentinel, tls=true for Cluster. With TLS also
	// tls_ca, tls_cert and tls_key, which name files in PEM: the CAs to trust in place of the
	// system's, and the certificate and key that a server with tls-auth-clients asks for.
	URL string

	// TLS is how connections are secured, where the URL asks for TLS and names no files; its
	// ServerName is that of the URL by default. nil = TLS 1.2 or later, and the system's CAs.
	TLS *tls.Config
	// Credentials is called for each new connection to a data server, such as for tokens of a
	// cloud's IAM that expire; the URL's user and password are then ignored. Many goroutines may
	// call it at once, and its error becomes that of the call. nil = the URL's.
	Credentials func(context.Context) (username, password string, err error)

	Prefix string // before every key; "" = coatcheck:
	Ack    int    // replicas that must confirm every write; 0 = none; or AckAll
	// how long a write waits for them, at most; 0 = half a second, or half of a shorter Timeout
	AckTimeout time.Duration
	Restarts   Restarts // how another incarnation of Redis is judged; "" = RestartsAuto
	// how long a call may take in all, the acknowledgement included; 0 = 1s, embedded: 30s
	Timeout time.Duration

	MaxBytes int64        // embedded: how much memory what it holds may take; 0 = its own default
	Logger   *slog.Logger // nil = slog.Default()

	Observers []observe.Observer // are told what the store does, in this order; nil = none is
}

// Store runs scripts on one Redis. It is safe for concurrent use.
type Store struct {
	engine  pipeline.Engine
	own     driver.Store // the embedded store, which this one ends; else nil
	mode    Mode
	address string
	prefix  string
}

var _ = bind()

// bind lets our packages make the calls of a store that have no use for others.
func bind() struct{} {
	pipeline.Of = func(store any) *pipeline.Engine { return &store.(*Store).engine }
	return struct{}{}
}

// Open returns a store on the Redis that the URL names, with the defaults of [Config]. It does not
// wait for Redis: a server that is away now shows in the first call. The error names the URL's
// faults, but never its password. An empty URL, as of a variable that is not set, is one:
// "embedded:" is the store in memory.
func Open(ctx context.Context, url string) (*Store, error) {
	return OpenConfig(ctx, Config{URL: url})
}

// OpenConfig is [Open] with all settings. All faults of the configuration are reported together.
func OpenConfig(_ context.Context, config Config) (*Store, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	target, err := config.target()
	if err != nil {
		return nil, err
	}
	redirectGoRedis()
	config = config.WithDefaults()
	store := config.store(Mode(target.Mode), target.Address)
	if err := store.connect(target, config); err != nil {
		return nil, err
	}
	return store, nil
}

// store is a store that has no servers yet.
func (c Config) store(mode Mode, address string) *Store {
	engine := pipeline.New(pipeline.Config{Ack: c.Ack, AckTimeout: c.AckTimeout, Timeout: c.Timeout,
		Restarts: pipeline.Restarts(c.Restarts), Places: c.Prefix + "places",
		Observers: slices.Clone(c.Observers), Classify: classify})
	return &Store{engine: engine, mode: mode, address: address, prefix: c.Prefix}
}

// WithDefaults returns the configuration with each default in its place.
func (c Config) WithDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, defaultPrefix)
	c.Restarts = cmp.Or(c.Restarts, RestartsAuto)
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
		if strings.HasPrefix(c.URL, "embedded:") {
			c.Timeout = embeddedTimeout
		}
	}
	c.AckTimeout = cmp.Or(c.AckTimeout, min(500*time.Millisecond, c.Timeout/2))
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// target is the servers that the configuration connects to.
func (c Config) target() (redisconn.Target, error) {
	found, err := redisconn.Parse(c.URL)
	if err != nil {
		return found, err
	}
	return found, found.Secure(c.TLS, c.Credentials)
}

// Check returns every fault of a configuration. It opens nothing but the files that its URL names.
func (c Config) Check() error {
	target, err := c.target()
	return errors.Join(err, c.WithDefaults().check(Mode(target.Mode)))
}

func (c Config) check(mode Mode) error {
	faults := []error{checkPrefix(c.Prefix)}
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	if mode == ModeEmbedded {
		faults = append(faults, missing())
	}
	fault(c.Ack != AckAll && (c.Ack < 0 || c.Ack > 100), "ack %d: 0 to 100 replicas, or all", c.Ack)
	fault(c.Timeout < 10*time.Millisecond || c.Timeout > time.Minute, "timeout %v: 10ms to 1m", c.Timeout)
	fault(c.AckTimeout < time.Millisecond || c.AckTimeout >= c.Timeout,
		"ack timeout %v: at least 1ms, and less than the timeout of %v", c.AckTimeout, c.Timeout)
	fault(!slices.Contains([]Restarts{RestartsAuto, RestartsWait, RestartsTrust}, c.Restarts), "restarts %q: %s, %s or %s", c.Restarts,
		RestartsAuto, RestartsWait, RestartsTrust)
	fault(mode == ModeEmbedded && c.Restarts == RestartsTrust,
		"restarts %q: the embedded store ends with its process; give the URL of a Redis",
		c.Restarts)
	fault(mode == ModeEmbedded && c.Ack != 0, "ack: the embedded store has no replicas; give the URL of a Redis that has")
	return errors.Join(faults...)
}

// missing is the fault of a program without the embedded store.
func missing() error {
	if err := driver.Check(); err != nil {
		return fmt.Errorf("embedded store: %w", err)
	}
	return nil
}

func (s *Store) connect(target redisconn.Target, config Config) error {
	switch Mode(target.Mode) {
	case ModeEmbedded:
		own, err := driver.Open(driver.Config{MaxBytes: config.MaxBytes, Logger: config.Logger})
		if err != nil {
			return fmt.Errorf("embedded store: %w", err)
		}
		s.own = own
		s.engine.Serve(redisconn.InProcess(own.Dial, config.Timeout))
	case ModeSentinel:
		s.follow(redisconn.Failover(target, config.Timeout), config.Timeout)
	case ModeCluster:
		s.engine.Cluster(redisconn.ClusterOptions(target, config.Timeout))
	default:
		s.engine.Serve(redisconn.Safe(target.Server, config.Timeout))
	}
	return nil
}

// follow connects to the master that sentinels name.
func (s *Store) follow(options *redis.FailoverOptions, timeout time.Duration) {
	list := redisconn.ListPlaces(options, timeout)
	s.engine.Failover(options, func(ctx context.Context, run string) (pipeline.Places, error) {
		own, others, err := list(ctx, run)
		return pipeline.Places{Own: own, Others: others}, err
	})
}

// WithAck returns a view of the store that waits for another number of replicas, or AckAll. It
// shares the connections; closing one closes both.
func (s *Store) WithAck(replicas int) *Store {
	view := *s
	view.engine = s.engine.WithAck(replicas)
	return &view
}

// Mode returns the kind of Redis.
func (s *Store) Mode() Mode { return s.mode }

// Address names the Redis for people: the URL's hosts without user, password or parameters.
func (s *Store) Address() string { return s.address }

// Prefix begins the name of every key.
func (s *Store) Prefix() string { return s.prefix }

// Ack is how many replicas confirm a write before it counts, or AckAll.
func (s *Store) Ack() int { return s.engine.Ack() }

// Continuity is what would be lost, as far as Redis shows it now. See [RestartsAuto].
type Continuity struct {
	Acks      int  // replicas that confirm each write; with AckAll the most of any master
	Promotion bool // a failover costs nothing
	Restart   bool // a restart costs nothing
	OnDisk    bool // what is confirmed is on disk, at the master
}

// Continuity asks every master within the context and the store's timeout. What holds, holds at all
// of them. The error is an [*Error] of class [ErrUnavailable].
func (s *Store) Continuity(ctx context.Context) (Continuity, error) {
	found, err := s.engine.Continuity(ctx)
	if err != nil {
		return Continuity{}, classify(ctx, "continuity", err, false, true)
	}
	return Continuity(found), nil
}

// Ping reports whether every master answers within the context and the store's timeout, with the
// time, without which no script runs. The error is an [*Error] of class [ErrUnavailable].
func (s *Store) Ping(ctx context.Context) error { return s.engine.Ping(ctx) }

// PoolStats returns the statistics of the store's connections to all of its servers, but for those
// of subscriptions. It asks no server, except in a cluster whose servers are not known yet.
func (s *Store) PoolStats() *redis.PoolStats { return s.engine.PoolStats() }

// Close ends the connections, and the embedded store with them, which then writes its last
// snapshot. Calls under way fail. Closing again does nothing. The client that [New] was given stays
// open: its calls under way end by themselves, and only later ones fail.
func (s *Store) Close() error {
	err := s.engine.Close()
	if s.own != nil {
		err = errors.Join(err, s.own.Close())
	}
	return err
}
