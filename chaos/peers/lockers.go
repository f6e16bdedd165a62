package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/chaos/internal/locking"
)

// again is how soon who finds a lock taken asks again.
const again = 5 * time.Millisecond

// viaGoRedis locks through a client of go-redis.
type viaGoRedis struct {
	client  *redis.Client
	acquire func(ctx context.Context, name string) (*renewed, error)
	ended   func(err error) bool
}

// Acquire implements locking.Locker.
func (v *viaGoRedis) Acquire(ctx context.Context, w locking.Wish) (locking.Holding, error) {
	held, err := v.acquire(ctx, w.Name)
	if err != nil {
		return nil, err // and no holding that is nil inside
	}
	return held, nil
}

// Lost implements locking.Locker.
func (v *viaGoRedis) Lost(err error) bool { return errors.Is(err, errLost) || v.ended(err) }

// Close implements locking.Locker.
func (v *viaGoRedis) Close() error { return v.client.Close() }

// openRedislock locks as redislock's documentation does: a lock is refreshed, and over when a
// refresh says so.
func openRedislock(_ context.Context, url string) (locking.Locker, error) {
	client, err := chaostest.PeerClient(url)
	if err != nil {
		return nil, err
	}
	acquire := func(ctx context.Context, name string) (*renewed, error) {
		held, err := redislock.Obtain(ctx, client, name, locking.TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(again)})
		if err != nil {
			return nil, err
		}
		return renew(ctx, way{
			renew:   func(ctx context.Context) (time.Time, error) { return time.Time{}, held.Refresh(ctx, locking.TTL, nil) },
			lost:    func(err error) bool { return errors.Is(err, redislock.ErrNotObtained) },
			release: held.Release,
		}, time.Time{}), nil
	}
	return &viaGoRedis{client, acquire, func(err error) bool { return errors.Is(err, redislock.ErrLockNotHeld) }}, nil
}

// openRedsync locks as redsync's documentation does: a mutex is extended, and over when an
// extension says so or the time has come that it tells itself, Until.
func openRedsync(_ context.Context, url string) (locking.Locker, error) {
	client, err := chaostest.PeerClient(url)
	if err != nil {
		return nil, err
	}
	of := redsync.New(goredis.NewPool(client))
	var taken *redsync.ErrTaken
	gone := func(err error) bool {
		return errors.As(err, &taken) || errors.Is(err, redsync.ErrExtendFailed) || errors.Is(err, redsync.ErrLockAlreadyExpired)
	}
	acquire := func(ctx context.Context, name string) (*renewed, error) {
		mutex := of.NewMutex(name, redsync.WithExpiry(locking.TTL), redsync.WithRetryDelay(again), redsync.WithTries(1000))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, err
		}
		return renew(ctx, way{
			renew: func(ctx context.Context) (time.Time, error) {
				ok, err := mutex.ExtendContext(ctx)
				if err == nil && !ok {
					err = redsync.ErrExtendFailed
				}
				return mutex.Until(), err
			},
			lost: gone,
			release: func(ctx context.Context) error {
				_, err := mutex.UnlockContext(ctx)
				return err
			},
		}, mutex.Until()), nil
	}
	return &viaGoRedis{client, acquire, gone}, nil
}

// viaRueidis locks by rueidislock, which renews by itself and ends a context.
type viaRueidis struct{ locker rueidislock.Locker }

func openRueidislock(_ context.Context, url string) (locking.Locker, error) {
	option := rueidis.ClientOption{}
	if after, bySentinel := strings.CutPrefix(url, "redis+sentinel://"); bySentinel {
		addresses, master, _ := strings.Cut(after, "/")
		option.InitAddress, option.Sentinel.MasterSet = strings.Split(addresses, ","), master
	} else {
		option.InitAddress = []string{strings.TrimPrefix(url, "redis://")}
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: option, KeyValidity: locking.TTL,
		ExtendInterval: locking.TTL / 3, TryNextAfter: again})
	return &viaRueidis{locker}, err
}

// Acquire implements locking.Locker.
func (v *viaRueidis) Acquire(ctx context.Context, w locking.Wish) (locking.Holding, error) {
	held, release, err := v.locker.WithContext(ctx, w.Name)
	if err != nil {
		return nil, err
	}
	return &byContext{held, release}, nil
}

// Lost implements locking.Locker.
func (v *viaRueidis) Lost(err error) bool { return errors.Is(err, errLost) }

// Close implements locking.Locker.
func (v *viaRueidis) Close() error {
	v.locker.Close()
	return nil
}

// byContext is a lock for as long as its context.
type byContext struct {
	ctx     context.Context
	release context.CancelFunc
}

// Fence implements locking.Holding: there is none.
func (*byContext) Fence() int64 { return 0 }

// Err implements locking.Holding.
func (b *byContext) Err() error { return b.ctx.Err() }

// Release implements locking.Holding.
func (b *byContext) Release(context.Context) error {
	err := b.ctx.Err()
	b.release()
	if err != nil {
		return errLost
	}
	return nil
}
