package onstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Run runs a script on the server that holds the first key, by its hash, and waits for the store's
// acknowledgement if the script writes. All keys must share a hash tag. Arguments are strings, byte
// slices, integers, and pointers to them, which spare a copy; they and the keys must not be changed
// after the call. It is safe for concurrent use, never sends a script twice unless Redis said that
// it did not run, and ends within the context's deadline and the store's timeout. With more than 16
// KiB of arguments it waits up to ten seconds for its turn before that, and has a second more for
// each 4 MiB. The error is a [*redisstore.Error].
//
// If only the acknowledgement failed, with a [*redisstore.ShortfallError], Run returns the reply
// beside the error: this server's decision, which a failover can undo.
func Run(ctx context.Context, store *redisstore.Store, script *scripts.Script, keys []string, args ...any) (scripts.Reply, error) {
	return pipeline.Of(store).Run(ctx, script, keys, args...)
}

// EachMaster calls f with a client of every master, in a cluster of several at once, within the
// context. The calls of f have none of the store's promises, and must be harmless if done twice.
// The error is a [*redisstore.Error] of class [redisstore.ErrUnavailable] that says what was done.
func EachMaster(
	ctx context.Context, store *redisstore.Store, what string, f func(ctx context.Context, master *redis.Client) error,
) error {
	return pipeline.Of(store).EachMaster(ctx, what, f)
}

// Timeout is how long a call of the store takes at most.
func Timeout(store *redisstore.Store) time.Duration { return pipeline.Of(store).Timeout() }

// Restarts returns how a restart or a failover of the Redis is judged.
func Restarts(store *redisstore.Store) redisstore.Restarts {
	return redisstore.Restarts(pipeline.Of(store).Restarts())
}
