package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// LogTo sends the messages of go-redis, such as failed dials, to a logger at debug level. It holds
// for the whole process: a program calls it once, before it opens a store. Later calls may come at
// any time, and change the logger. Without it they go to slog.Default from the first store that
// [Open] opens, and not to standard error; [New] leaves the logger of a program's own client alone.
func LogTo(logger *slog.Logger) {
	goRedisLogger.Store(logger)
	redirectGoRedis()
}

var goRedisLogger atomic.Pointer[slog.Logger]

// redirectGoRedis writes go-redis's global variable just once: its goroutines read it unlocked.
var redirectGoRedis = sync.OnceFunc(func() { redis.SetLogger(goRedisLog{}) })

type goRedisLog struct{}

func (goRedisLog) Printf(ctx context.Context, format string, args ...any) {
	cmp.Or(goRedisLogger.Load(), slog.Default()).DebugContext(ctx, "go-redis", "message", fmt.Sprintf(format, args...))
}
