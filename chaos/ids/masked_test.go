//go:build check

package ids

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/snowflake"
)

// stampMasked stamps as many do it: a worker id is INCR & mask, taken if SET NX with a TTL
// succeeds, and prolonged by PEXPIRE; timestamps are the wall clock's.
func stampMasked(ctx context.Context, task chaostest.Task) error {
	_, layout := shape()
	client, err := chaostest.PeerClient(task.Store)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	var held atomic.Int64
	held.Store(-1)
	go prolong(ctx, client, &held, 1<<layout.Worker-1)
	stamped := make([]snowflake.ID, batch)
	last := int64(0)
	for ctx.Err() == nil {
		worker := held.Load()
		now := max(time.Now().UnixMilli(), last+1)
		if worker < 0 {
			time.Sleep(rest)
			continue
		}
		last = now
		for i := range stamped {
			stamped[i] = snowflake.ID((now-snowflake.DefaultEpoch.UnixMilli())<<(layout.Worker+layout.Sequence) | worker<<layout.Sequence | int64(i))
		}
		chaostest.WriteRecord(task.File, stamped...)
		time.Sleep(rest)
	}
	return nil
}

// prolong takes a worker id and keeps its key alive.
func prolong(ctx context.Context, client *redis.Client, held *atomic.Int64, mask int64) {
	for ; ctx.Err() == nil; time.Sleep(ttl / 3) {
		if worker := held.Load(); worker >= 0 {
			if ok, err := client.PExpire(ctx, key(worker), ttl).Result(); err == nil && !ok {
				held.Store(-1)
			}
			continue
		}
		next, err := client.Incr(ctx, "masked:next").Result()
		if err != nil {
			continue
		}
		if ok, err := client.SetNX(ctx, key(next&mask), "x", ttl).Result(); err == nil && ok {
			held.Store(next & mask)
		}
	}
}

func key(worker int64) string { return fmt.Sprintf("masked:%d", worker) }
