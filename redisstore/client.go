package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coatcheck/coatcheck/embedded"
)

// poolSize is how many connections to one server a client may hold where the URL does not say.
// Calls beyond it wait for one, within their own deadline.
const poolSize = 64

// onePool keeps go-redis from opening a second pool of ten connections for pipelines, beside the
// one that pool_size limits.
const onePool = -1

// safe sets what go-redis leaves unsafe by default: commands are not repeated, a context's deadline
// holds, a dial is tried once, and nothing is sent that Valkey or an old Redis does not know.
func safe(options *redis.Options, timeout time.Duration) *redis.Options {
	options.Protocol = 2
	options.MaxRetries = -1
	options.DialerRetries = 1
	options.DialTimeout = timeout
	options.ReadTimeout = timeout
	options.WriteTimeout = timeout
	options.PoolTimeout = timeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.MaintNotificationsConfig = quiet()
	options.PipelinePoolSize = onePool
	if options.PoolSize == 0 {
		options.PoolSize = poolSize
	}
	return options
}

func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

func inProcess(own *embedded.Store, timeout time.Duration) *redis.Options {
	return safe(&redis.Options{
		Addr:   "127.0.0.1:0", // never dialed; an IP, so that nothing looks up a name
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return own.Dial(ctx) },
	}, timeout)
}

func safeFailover(t target, timeout time.Duration) *redis.FailoverOptions {
	size, _ := t.poolSize()
	if size == 0 {
		size = poolSize
	}
	return &redis.FailoverOptions{
		MasterName: t.master, SentinelAddrs: t.hosts,
		SentinelUsername: t.query.Get("sentinel_username"), SentinelPassword: t.query.Get("sentinel_password"),
		Username: t.username, Password: t.password, DB: t.db, TLSConfig: t.security, CredentialsProviderContext: t.credentials, PoolSize: size, PipelinePoolSize: onePool,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
	}
}

func safeCluster(t target, timeout time.Duration) *redis.ClusterOptions {
	size, _ := t.poolSize()
	if size == 0 {
		size = poolSize
	}
	return &redis.ClusterOptions{
		Addrs:    t.hosts,
		Username: t.username, Password: t.password, TLSConfig: t.security, CredentialsProviderContext: t.credentials, PoolSize: size, PipelinePoolSize: onePool,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout,
		MaintNotificationsConfig: quiet(),
	}
}

// LogTo sends the messages of go-redis, such as failed dials, to a logger at debug level instead of
// standard error. It holds for the whole process: a program calls it once, before it opens a store.
// Later calls may come at any time, and change the logger.
func LogTo(logger *slog.Logger) {
	goRedisLogger.Store(logger)
	redirectGoRedis()
}

var goRedisLogger atomic.Pointer[slog.Logger]

// redirectGoRedis writes go-redis's global variable once only: its goroutines read it without a
// lock.
var redirectGoRedis = sync.OnceFunc(func() { redis.SetLogger(goRedisLog{}) })

type goRedisLog struct{}

// Printf takes go-redis's messages.
func (goRedisLog) Printf(ctx context.Context, format string, args ...any) {
	goRedisLogger.Load().DebugContext(ctx, "go-redis", "message", fmt.Sprintf(format, args...))
}
