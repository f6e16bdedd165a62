package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

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
