package redisstore

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/coatcheck/coatcheck/scripts"
)

const (
	restoredPage   = 1000 // keys that a SCAN looks at in one step
	restoredAtOnce = 64
)

// Restored says that this Redis was started from a copy or a backup: what was confirmed after that
// was made may be missing. All state with the store's prefix counts as possibly lost, once:
// worker-id pools wait until every window that may be open has ended, counters and segments move
// past all values, or are held, and locks wait if they are so configured. Tokens are not marked:
// one that was used after the copy was made can run again.
//
// It looks at every key of every master, in steps, and returns how many markers and pools it has
// marked. It must be called before processes use the store again. The error is an [*Error]; to call
// it again is harmless until then.
func (s *Store) Restored(ctx context.Context) (marked int, err error) {
	var count atomic.Int64
	err = s.engine.EachMaster(ctx, "store restored", func(ctx context.Context, node *redis.Client) error {
		return s.eachNote(ctx, node, scripts.StoreRestored, func(reply scripts.Reply) {
			if reply.Word() == "marked" {
				count.Add(1)
			}
		})
	})
	return int(count.Load()), err
}

// eachNote runs a script for each note at a master, and gives the replies to answered, several at
// once.
func (s *Store) eachNote(
	ctx context.Context, node *redis.Client, script *scripts.Script, answered func(scripts.Reply), args ...any,
) error {
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, s.prefix+"*", restoredPage).Result()
		if err != nil {
			return err
		}
		var all errgroup.Group
		all.SetLimit(restoredAtOnce)
		for _, key := range keys {
			if !s.hasNote(key) {
				continue
			}
			all.Go(func() error {
				reply, err := s.engine.Run(ctx, script, []string{key}, args...)
				if err == nil {
					answered(reply)
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// hasNote reports whether a key's name is one of a marker or of a pool.
func (s *Store) hasNote(key string) bool {
	name, ours := strings.CutPrefix(key, s.prefix)
	kind, rest, _ := strings.Cut(name, ":{")
	switch {
	case !ours:
		return false
	case rest == "marker}", strings.HasSuffix(rest, "}:marker") && s.mode == ModeCluster,
		kind == "incarnation" && strings.HasSuffix(rest, "}"),
		kind == "places" && strings.HasSuffix(rest, "}"):
		return true
	}
	return kind == "worker" && strings.HasSuffix(rest, "}")
}
