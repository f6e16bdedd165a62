package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The ways to lock that the locks command compares.
const (
	bareTrips     = "two bare round trips"
	redislockWay  = "redislock"
	rueidislockIt = "rueidislock"
	bareList      = "a token in a list"
)

// leaseTime is the TTL where a caller names it: of coatcheck's and redislock's.
const leaseTime = 30 * time.Second

// lockClient locks, as one process would. It is safe for concurrent use.
type lockClient struct {
	// waits until it has the lock of that name
	lock  func(ctx context.Context, name string) (unlock, error)
	close func() error
}

// unlock gives a lock back.
type unlock func(ctx context.Context) error

// lockWays open a client of each way at a Redis. Bare round trips lock nothing. A token in a list
// is the least that passes something on between processes in order: it has no lease, and no fence.
var lockWays = map[string]func(ctx context.Context, addr string) (lockClient, error){
	coatcheck:     openCoatcheckLocks,
	bareTrips:     openPings,
	redislockWay:  openRedislock,
	rueidislockIt: openRueidislock,
	bareList:      openLists,
}

// openLocks opens a client of a way.
func openLocks(ctx context.Context, way, addr string) (lockClient, error) {
	open := lockWays[way]
	if open == nil {
		return lockClient{}, usageError{fmt.Errorf("no way to lock is called %q", way)}
	}
	return open(ctx, addr)
}

// lockRedis is a client with a connection for each of many callers.
func lockRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: inFlight})
}

func openCoatcheckLocks(ctx context.Context, addr string) (lockClient, error) {
	store, err := redisstore.Open(ctx, "redis://"+addr)
	if err != nil {
		return lockClient{}, err
	}
	locks := lock.New(store, lock.Config{})
	take := func(ctx context.Context, name string) (unlock, error) {
		held, err := locks.Acquire(ctx, name, lock.Request{TTL: leaseTime})
		if err != nil {
			return nil, err
		}
		if held.Fence() <= 0 {
			return nil, errors.New("a grant without a fence")
		}
		return held.Release, nil
	}
	return lockClient{take, func() error { return errors.Join(locks.Close(), store.Close()) }}, nil
}

func openPings(_ context.Context, addr string) (lockClient, error) {
	client := lockRedis(addr)
	take := func(ctx context.Context, _ string) (unlock, error) {
		return func(ctx context.Context) error { return client.Ping(ctx).Err() }, client.Ping(ctx).Err()
	}
	return lockClient{take, client.Close}, nil
}

// openRedislock tries every 100 ms, as its README has it.
func openRedislock(_ context.Context, addr string) (lockClient, error) {
	client := lockRedis(addr)
	take := func(ctx context.Context, name string) (unlock, error) {
		held, err := redislock.Obtain(ctx, client, name, leaseTime,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		if err != nil {
			return nil, err
		}
		return held.Release, nil
	}
	return lockClient{take, client.Close}, nil
}

func openRueidislock(_ context.Context, addr string) (lockClient, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority: 1})
	if err != nil {
		return lockClient{}, err
	}
	take := func(ctx context.Context, name string) (unlock, error) {
		_, release, err := locker.WithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { release(); return nil }, nil
	}
	return lockClient{take, func() error { locker.Close(); return nil }}, nil
}

// openLists passes a token on through a list: BLPOP takes it, in the order of those who wait, and
// RPUSH puts it back. The first process that asks for a name puts it there.
func openLists(_ context.Context, addr string) (lockClient, error) {
	client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: inFlight, ContextTimeoutEnabled: true})
	var known sync.Map
	take := func(ctx context.Context, name string) (unlock, error) {
		put := func(ctx context.Context) error { return client.RPush(ctx, name, "").Err() }
		if _, again := known.LoadOrStore(name, true); !again {
			first, err := client.SetNX(ctx, name+":begun", "", 0).Result()
			if err == nil && first {
				err = put(ctx)
			}
			if err != nil {
				return nil, err
			}
		}
		err := client.BLPop(ctx, 0, name).Err()
		if until, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(until) {
			<-ctx.Done() // the connection notices the end a moment before the context does
		}
		return put, err
	}
	return lockClient{take, client.Close}, nil
}
