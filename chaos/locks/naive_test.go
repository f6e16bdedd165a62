//go:build check

package locks

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// naive is the lock that many have written: SET NX with a TTL, tried again until it is there;
// PEXPIRE every third of it; DEL. It has no fence, and believes that it holds until a renewal says
// otherwise.
type naive struct{ client *redis.Client }

func openNaive(url string) (*naive, error) {
	client, err := chaostest.PeerClient(url)
	if err != nil {
		return nil, err
	}
	return &naive{client}, nil
}

var errNaiveLost = errors.New("it is no longer ours")

func (n *naive) Acquire(ctx context.Context, w wish) (holding, error) {
	value := strconv.FormatUint(rand.Uint64(), 36)
	for ctx.Err() == nil {
		if ok, err := n.client.SetNX(ctx, w.Name, value, ttl).Result(); err == nil && ok {
			h := &naiveHolding{client: n.client, key: w.Name, value: value}
			h.renewing, h.stop = context.WithCancel(context.WithoutCancel(ctx))
			h.renewer.Go(h.renew)
			return h, nil
		}
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	return nil, ctx.Err()
}

func (n *naive) Lost(err error) bool { return errors.Is(err, errNaiveLost) }

func (n *naive) Close() error { return n.client.Close() }

type naiveHolding struct {
	client     *redis.Client
	key, value string
	renewing   context.Context
	stop       context.CancelFunc
	renewer    sync.WaitGroup

	mu  sync.Mutex
	err error
}

func (h *naiveHolding) Fence() int64 { return 0 }

func (h *naiveHolding) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// renew prolongs the lock until it is given back, or another's value is there.
func (h *naiveHolding) renew() {
	for {
		select {
		case <-h.renewing.Done():
			return
		case <-time.After(ttl / 3):
		}
		value, err := h.client.Get(h.renewing, h.key).Result()
		if err == nil && value == h.value {
			err = h.client.PExpire(h.renewing, h.key, ttl).Err()
		} else if err == nil {
			err = errNaiveLost
		}
		if err != nil && h.renewing.Err() == nil {
			h.mu.Lock()
			h.err = err
			h.mu.Unlock()
			return
		}
	}
}

func (h *naiveHolding) Release(ctx context.Context) error {
	h.stop()
	h.renewer.Wait()
	if err := h.Err(); err != nil {
		return err
	}
	return h.client.Del(ctx, h.key).Err()
}
