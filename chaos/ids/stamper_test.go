//go:build check

package ids

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

const pool = "ids"

// batch ids are stamped at a time, and then a short rest is taken: the more ids, the more can be
// equal, but all have to be compared.
const (
	batch = 64
	rest  = 4 * time.Millisecond
)

// play is what a process does in a role, until it is asked to end.
func play(role string) error {
	stamp, known := map[string]func(context.Context, chaostest.Task) error{"leased": stampLeased, "masked": stampMasked}[role]
	if !known {
		return fmt.Errorf("no role is called %q", role)
	}
	return chaostest.Work(stamp)
}

// shape is what the pool's ids look like.
func shape() (workerlease.Shape, snowflake.Layout) {
	layout, err := snowflake.ParseLayout(ring)
	if err != nil {
		panic(err) // it is a constant
	}
	return workerlease.Shape{Layout: ring, Epoch: snowflake.DefaultEpoch}, layout
}

func poolsOf(store *redisstore.Store) *workerlease.Pools {
	return workerlease.New(store, workerlease.Config{Skew: skew, LongestTTL: ttl})
}

// stampLeased stamps with a leased worker id, and with another one whenever that is lost.
func stampLeased(ctx context.Context, task chaostest.Task) error {
	store, err := task.OpenRedis(ctx)
	if err != nil {
		return err
	}
	shape, _ := shape()
	holder := poolsOf(store).Start(ctx, pool, workerlease.Request{TTL: ttl, Shape: shape}, workerlease.HoldOptions{})
	generator, err := snowflake.New(holder, snowflake.Config{})
	if err != nil {
		return err
	}
	stamped := make([]snowflake.ID, batch)
	for ctx.Err() == nil {
		if err := generator.Fill(ctx, stamped); err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		chaostest.WriteRecord(task.File, stamped...)
		time.Sleep(rest)
	}
	return errors.Join(holder.Release(context.WithoutCancel(ctx), generator.Stop()), store.Close())
}
