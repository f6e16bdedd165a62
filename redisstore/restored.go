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
	err = s.EachMaster(ctx, "store restored", func(ctx context.Context, node *redis.Client) error {
		return s.markAll(ctx, node, &count, "restored")
	})
	return int(count.Load()), err
}

// ReplicasGone says that servers which have confirmed writes under [AckAll] are gone for good, and
// that none of them becomes master: nobody waits for them from then on. places are their addresses,
// host:port; without any, all of them that are not attached now are gone. One that is attached is
// refused. Take them off the list of Sentinel before (SENTINEL RESET), or processes note them
// again. If one of them becomes master all the same, values and worker ids come twice. Otherwise it
// is as [Store.Restored], and nothing counts as lost.
func (s *Store) ReplicasGone(ctx context.Context, places ...string) (marked int, err error) {
	var count atomic.Int64
	err = s.EachMaster(ctx, "store replicas-gone", func(ctx context.Context, node *redis.Client) error {
		if s.mode == Embedded {
			return nil
		}
		stay, err := s.engine.Staying(ctx, node, places)
		if err != nil {
			return err
		}
		if len(places) > 0 {
			return s.markAll(ctx, node, &count, "drop", strings.Join(places, ","))
		}
		return s.markAll(ctx, node, &count, "keep", strings.Join(stay, ","))
	})
	return int(count.Load()), err
}

// markAll says something of each note at a master.
func (s *Store) markAll(ctx context.Context, node *redis.Client, count *atomic.Int64, said ...any) error {
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, s.prefix+"*", restoredPage).Result()
		if err != nil {
			return err
		}
		if err := s.mark(ctx, keys, count, said); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (s *Store) mark(ctx context.Context, keys []string, count *atomic.Int64, said []any) error {
	var all errgroup.Group
	all.SetLimit(restoredAtOnce)
	for _, key := range keys {
		if !s.hasNote(key) {
			continue
		}
		all.Go(func() error {
			reply, err := s.Run(ctx, scripts.StoreRestored, []string{key}, said...)
			if err == nil && reply.Word() == "marked" {
				count.Add(1)
			}
			return err
		})
	}
	return all.Wait()
}

// hasNote reports whether a key's name is one of a marker ([Store.SlotKey]) or of a pool.
func (s *Store) hasNote(key string) bool {
	name, ours := strings.CutPrefix(key, s.prefix)
	kind, rest, _ := strings.Cut(name, ":{")
	switch {
	case !ours:
		return false
	case rest == "marker}", strings.HasSuffix(rest, "}:marker") && s.mode == Cluster, kind == "incarnation" && strings.HasSuffix(rest, "}"),
		kind == "places" && strings.HasSuffix(rest, "}"):
		return true
	}
	return kind == "worker" && strings.HasSuffix(rest, "}")
}
