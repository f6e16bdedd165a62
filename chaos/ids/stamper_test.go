//go:build check

package ids

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// What a stamping process is told by its environment.
const (
	redisVariable = "CHAOS_REDIS"
	fileVariable  = "CHAOS_FILE"
	ackVariable   = "CHAOS_ACK"
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
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ack, err := strconv.Atoi(os.Getenv(ackVariable))
	if err != nil {
		return err
	}
	if ack == 2 && os.Getpid()%2 == 0 { // both replicas, in the other words for it
		ack = redisstore.AckAll
	}
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: os.Getenv(redisVariable), Ack: ack})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(os.Getenv(fileVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	switch role {
	case "leased":
		err = stampLeased(ctx, store, file)
	case "masked":
		err = stampMasked(ctx, file)
	default:
		err = fmt.Errorf("no role is called %q", role)
	}
	return errors.Join(err, file.Close(), store.Close())
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
func stampLeased(ctx context.Context, store *redisstore.Store, file *os.File) error {
	shape, _ := shape()
	holder := poolsOf(store).Start(ctx, pool, workerlease.Request{TTL: ttl, Shape: shape}, workerlease.HoldOptions{Reacquire: true})
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
		if err := write(file, stamped); err != nil {
			return err
		}
		time.Sleep(rest)
	}
	return holder.Release(context.WithoutCancel(ctx), generator.Stop())
}

// write appends ids to a file in one call, so that a process that is killed leaves whole ones.
func write(file *os.File, stamped []snowflake.ID) error {
	bytes := make([]byte, 0, 8*len(stamped))
	for _, id := range stamped {
		bytes = binary.BigEndian.AppendUint64(bytes, uint64(id))
	}
	_, err := file.Write(bytes)
	return err
}
