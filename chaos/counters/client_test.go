//go:build check

package counters

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/redisstore"
)

// adder is a way to count: it returns the first and the last value that the caller was told are
// his.
type adder interface {
	add(ctx context.Context, key string, by int64) (first, value int64, err error)
	Close() error
}

// play is what a process does in a role, until it is asked to end.
func play(role string) error {
	return chaostest.Work(func(ctx context.Context, task chaostest.Task) error {
		counting, err := open(ctx, role, task, counter.Config{})
		if err != nil {
			return err
		}
		var running sync.WaitGroup
		for range clients {
			running.Go(func() { count(ctx, counting, task.File, task.Number) })
		}
		running.Wait()
		return counting.Close()
	})
}

func open(ctx context.Context, role string, task chaostest.Task, config counter.Config) (adder, error) {
	switch role {
	case "ours":
		store, err := task.OpenRedis(ctx)
		if err != nil {
			return nil, err
		}
		return ours{counter.New(store, config), store}, nil
	case "plain":
		client, err := chaostest.PeerClient(task.Store)
		return plain{client}, err
	}
	return nil, fmt.Errorf("no role is called %q", role)
}

// count adds to counters until it is asked to end, mostly to the one that is the process's
// favourite, and writes down what it is told.
func count(ctx context.Context, counting adder, file *os.File, number int) {
	for ctx.Err() == nil {
		which := number % counters
		if rand.N(4) == 0 {
			which = rand.N(counters)
		}
		by := int64(1)
		if rand.N(8) == 0 {
			by += rand.N[int64](maxRange)
		}
		begun := moment()
		counter := counterOf(which, begun)
		if first, value, err := counting.add(ctx, counter.String(), by); err == nil {
			write(file, increment{counter, first, value, begun, moment()})
		}
		time.Sleep(rest)
	}
}

// counterID is which of the counters, and for half of them the number of the scene: they are given
// up for new ones all the time. So there are always some at which processes have seen little, and
// others at which they have seen much.
type counterID int64

func counterOf(which int, moment int64) counterID {
	if which%2 == 0 {
		return counterID(which)
	}
	return counterID(moment/int64(scene)*counters + int64(which))
}

// String is the name of the counter.
func (c counterID) String() string { return fmt.Sprintf("c%d.%d", c%counters, c/counters) }

// keyOf is where Redis keeps a counter, in both roles.
func keyOf(name string) string { return "coatcheck:counter:{" + name + "}" }

// ours counts by package counter.
type ours struct {
	*counter.Counters

	store *redisstore.Store
}

func (o ours) add(ctx context.Context, key string, by int64) (first, value int64, err error) {
	if by == 1 {
		value, err = o.Incr(ctx, key)
		return value, value, err
	}
	got, err := o.IncrBy(ctx, key, by)
	return got.First, got.Last, err
}

func (o ours) Close() error { return errors.Join(o.Counters.Close(), o.store.Close()) }

// plain counts as many do it: INCR and INCRBY by go-redis, which follows the sentinels. Without
// retries, by which it would add twice.
type plain struct{ client *redis.Client }

func (p plain) add(ctx context.Context, key string, by int64) (first, value int64, err error) {
	value, err = p.client.IncrBy(ctx, keyOf(key), by).Result()
	return value - by + 1, value, err
}

func (p plain) Close() error { return p.client.Close() }
