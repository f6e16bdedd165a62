package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	limits := limit.New(store)
	return limitClient{func(ctx context.Context, name string) error {
		_, err := limits.Take(ctx, name, limit.Rate{N: limit.MaxN, Per: time.Second}, 1)
		return err
	}, func() error { return errors.Join(limits.Close(), store.Close()) }}, nil
}

// limitsCommand compares rate limits: one caller, and many on one name and on a name each.
func limitsCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("limits", flag.ContinueOnError)
	rounds := flags.Int("rounds", 7, "rounds, in each of which every side is measured once")
	seconds := flags.Float64("seconds", 0.5, "length of each measured span")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 || *seconds < 0.01 || *seconds > 60 {
		return usageError{fmt.Errorf("%d rounds of %gs: at least one, of 0.01 to 60 s", *rounds, *seconds)}
	}
	server, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer server.end()
	machine, err := machine(ctx, server)
	if err != nil {
		return err
	}
	m := &lockMatch{redis: server, rounds: *rounds, span: span(*seconds), result: &table{
		Title: "limits", When: time.Now().UTC().Truncate(time.Second), Rounds: *rounds, Seconds: *seconds, Machine: machine,
		Columns: []string{"what", "side", "value", "unit", "to", "ratio", "middle half"},
	}}
	for _, load := range []struct {
		what    string
		callers int
		apart   bool
	}{{oneTake, 1, false}, {takesOfOne, inFlight, false}, {takesApart, inFlight, true}} {
		if err := m.limits(ctx, load.what, load.callers, load.apart); err != nil {
			return err
		}
	}
	m.result.Notes = append(m.result.Notes, "ratio: the side's value to that of the side named under to, in the same round.")
	return out.write(stdout, m.result)
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
