package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The ways to limit that the limits command compares, beside coatcheck.
const (
	redisRate  = "redis_rate"
	bareWindow = "a count with a TTL"
)

// What callers take.
const (
	oneTake    = "take, one caller"
	takesOfOne = "take, 64 callers, one name"
	takesApart = "take, 64 callers, a name each"
)

// window is the least that a limit takes in Redis: how many calls there were in a span of time.
var window = redis.NewScript(`local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return n`)

// limitClient takes one call from the limit of a name, as one process would. No limit is reached.
type limitClient struct {
	take  func(ctx context.Context, name string) error
	close func() error
}

var limitWays = map[string]func(ctx context.Context, addr string) (limitClient, error){
	coatcheck: openCoatcheckLimits,
	redisRate: func(_ context.Context, addr string) (limitClient, error) {
		client := lockRedis(addr)
		limiter := redis_rate.NewLimiter(client)
		return limitClient{func(ctx context.Context, name string) error {
			got, err := limiter.Allow(ctx, name, redis_rate.PerSecond(limit.MaxN))
			if err == nil && got.Allowed != 1 {
				err = errors.New("a limit is reached")
			}
			return err
		}, client.Close}, nil
	},
	bareWindow: func(_ context.Context, addr string) (limitClient, error) {
		client := lockRedis(addr)
		return limitClient{func(ctx context.Context, name string) error {
			return window.Run(ctx, client, []string{"window:" + name}, 1000).Err()
		}, client.Close}, nil
	},
}

func openCoatcheckLimits(ctx context.Context, addr string) (limitClient, error) {
	store, err := redisstore.Open(ctx, "redis://"+addr)
	if err != nil {
		return limitClient{}, err
	}
	limits := limit.New(store, limit.Config{})
	return limitClient{func(ctx context.Context, name string) error {
		_, err := limits.Take(ctx, name, limit.Rate{N: limit.MaxN, Per: time.Second}, 1)
		return err
	}, func() error { return errors.Join(limits.Close(), store.Close()) }}, nil
}

// limitsCommand compares rate limits: one caller, and many on one name and on a name each.
func limitsCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	m, err := beginMatch(ctx, "limits", args, 7)
	if err != nil {
		return err
	}
	defer m.redis.end()
	for _, load := range []struct {
		what    string
		callers int
		apart   bool
	}{{oneTake, 1, false}, {takesOfOne, inFlight, false}, {takesApart, inFlight, true}} {
		if err := m.limits(ctx, load.what, load.callers, load.apart); err != nil {
			return err
		}
	}
	return m.out.write(stdout, m.result)
}

func (m *lockMatch) limits(ctx context.Context, what string, callers int, apart bool) error {
	ways := []string{bareWindow, coatcheck, redisRate}
	values, err := m.turns(ctx, ways, func(ctx context.Context, way string) ([]float64, error) {
		client, err := limitWays[way](ctx, m.redis.addr)
		if err != nil {
			return nil, err
		}
		// connections are made, scripts are known
		_, warming := takesOf(ctx, client, callers, apart, m.span/4)
		takes, err := takesOf(ctx, client, callers, apart, m.span)
		return []float64{takes / m.span.Seconds()}, errors.Join(warming, err, client.close())
	})
	if err != nil {
		return err
	}
	m.rows(what, callsASecond, ways, values, 0, bareWindow)
	return nil
}

// takesOf counts the calls of some callers within a span.
func takesOf(ctx context.Context, client limitClient, callers int, apart bool, span time.Duration) (float64, error) {
	counts, errs := make([]int, callers), make([]error, callers)
	var all sync.WaitGroup
	start := time.Now()
	for i := range callers {
		all.Go(func() {
			name := "one"
			if apart {
				name = strconv.Itoa(i)
			}
			for time.Since(start) < span && errs[i] == nil {
				errs[i] = client.take(ctx, name)
				counts[i]++
			}
		})
	}
	all.Wait()
	took, sum := time.Since(start), 0
	for _, count := range counts {
		sum += count
	}
	return float64(sum) * span.Seconds() / took.Seconds(), errors.Join(errs...)
}
