package redisstore

import (
	"context"

	"github.com/coatcheck/coatcheck/scripts"
)

// Run runs a script on the server that holds the first key, by its hash, and waits for the store's
// acknowledgement if the script writes. All keys must share a hash tag. Arguments are strings, byte
// slices, integers, and pointers to them, which spare a copy; they and the keys must not be changed
// after the call. It is safe for concurrent use, never sends a script twice unless Redis said that
// it did not run, and ends within the context's deadline and the store's timeout. With more than 16
// KiB of arguments it waits up to ten seconds for its turn before that, and has a second more for
// each 4 MiB. The error is an [*Error].
//
// If only the acknowledgement failed, with a [*ShortfallError], Run returns the reply beside the
// error: this server's decision, which a failover can undo.
func (s *Store) Run(ctx context.Context, script *scripts.Script, keys []string, args ...any) (scripts.Reply, error) {
	return s.engine.Run(ctx, script, keys, args...)
}
