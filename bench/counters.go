package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// counterMatch is a running comparison of ways to add to counters.
type counterMatch struct {
	plan   plan
	keys   []int // how many the calls go to, by lot
	result *table
}

// countersCommand compares ways to add to counters over loopback, and with a replica that
// confirms each value.
func countersCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("counters", flag.ContinueOnError)
	m := &counterMatch{}
	flags.IntVar(&m.plan.rounds, "rounds", 5, "rounds, in each of which every side is measured once")
	flags.Float64Var(&m.plan.seconds, "seconds", 0.5, "length of each measured span")
	flags.StringVar(&m.plan.list, "callers", "1,64,256,1024", "numbers of concurrent callers")
	keys := flags.String("keys", "1,1000", "numbers of keys that the calls go to")
	m.plan.out.flags(flags)
	if err := m.plan.parse(flags, args); err != nil {
		return err
	}
	var err error
	if m.keys, err = numbers(*keys); err != nil {
		return err
	}
	about, err := aboutMachine(ctx)
	if err != nil {
		return err
	}
	m.result = &table{
		Title: "counters", When: time.Now().UTC().Truncate(time.Second), Rounds: m.plan.rounds, Seconds: m.plan.seconds, Machine: about,
		Columns: []string{"where", "keys", "callers", "side", "calls/s", "p50 µs", "p99 µs", "x go-redis", "middle half", "x AutoPipeline",
			"middle half", "load"},
	}
	for _, part := range []func(context.Context) error{m.near, m.acknowledged} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	m.result.Notes = append(m.result.Notes, "x: the side's calls a second to those of the side named, in the same round. load: the "+
		"machine's load average of a minute, after the last round.")
	return m.plan.out.write(stdout, m.result)
}

// aboutMachine describes the machine and its Redis.
func aboutMachine(ctx context.Context) (string, error) {
	redis, err := startRedis(ctx)
	if err != nil {
		return "", err
	}
	defer redis.end()
	return machine(ctx, redis)
}

// loadAverage is the machine's load average of a minute, "?" where it is not known.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// near measures over loopback.
func (m *counterMatch) near(ctx context.Context) error {
	redis, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.end()
	place := counterPlace{name: "loopback", redis: redis, addr: redis.addr, ways: []string{goRedisIncr, goRedisAutoIncr, coatcheck},
		least: leastIncrs}
	return m.everywhere(ctx, place)
}

// acknowledged measures with a replica that confirms each value.
func (m *counterMatch) acknowledged(ctx context.Context) error {
	redis, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.end()
	replica, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer replica.end()
	if err := replica.follow(ctx, redis.addr); err != nil {
		return err
	}
	return m.everywhere(ctx, counterPlace{name: "ack=1", redis: redis, addr: redis.addr, ack: 1, ways: []string{goRedisIncr, coatcheck}})
}

// counterPlace is a Redis, the way to it, and who is measured there.
type counterPlace struct {
	name  string
	redis *redisServer
	addr  string
	ack   int
	ways  []string
	least []string // measured beside them with inFlight callers
}

// everywhere measures on each number of keys, with each number of callers.
func (m *counterMatch) everywhere(ctx context.Context, place counterPlace) error {
	for _, keys := range m.keys {
		for _, callers := range m.plan.conns {
			place := place
			if callers == inFlight {
				place.ways = slices.Concat(place.ways, place.least)
			}
			samples := map[string][]countSample{}
			for round := range m.plan.rounds {
				for i := range place.ways {
					way := place.ways[(i+round)%len(place.ways)]
					sample, err := m.measure(ctx, place, way, keys, callers)
					if err != nil {
						return fmt.Errorf("%s, %d keys, %d callers: %w", way, keys, callers, err)
					}
					samples[way] = append(samples[way], sample)
				}
			}
			m.rows(place, keys, callers, samples)
			fmt.Fprintf(os.Stderr, "%s: %d keys, %d callers\n", place.name, keys, callers)
		}
	}
	return nil
}

// measure is one span of one way, by a client of its own, and a check that Redis has counted every
// call once.
func (m *counterMatch) measure(ctx context.Context, place counterPlace, way string, keys, callers int) (sample countSample, err error) {
	load := countLoad{callers: callers, names: counterNames(keys)}
	client, err := openCounting(ctx, way, place, load)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, client.close()) }()
	load.client = client
	if err := load.each(ctx); err != nil { // every key is known, and connections are made
		return sample, err
	}
	if _, err := load.run(ctx, m.plan.span()/4); err != nil {
		return sample, err
	}
	before, err := place.redis.sum(ctx, client, load.names)
	if err != nil {
		return sample, err
	}
	if sample, err = load.run(ctx, m.plan.span()); err != nil {
		return sample, err
	}
	after, err := place.redis.sum(ctx, client, load.names)
	if err == nil && after-before != sample.calls {
		err = fmt.Errorf("%d calls have added %d", sample.calls, after-before)
	}
	return sample, err
}

// rows adds what was found of each way, beside the others in the same round.
func (m *counterMatch) rows(place counterPlace, keys, callers int, samples map[string][]countSample) {
	rate := func(s countSample) float64 { return s.rate }
	for _, way := range place.ways {
		own := samples[way]
		m.result.keep(fmt.Sprintf("%s, keys: %d, callers: %d", place.name, keys, callers), way, "calls/s", of(own, rate))
		row := []any{
			place.name, keys, callers, way, median(of(own, rate)),
			median(of(own, func(s countSample) float64 { return s.p50 })), median(of(own, func(s countSample) float64 { return s.p99 })),
		}
		for _, to := range []string{goRedisIncr, goRedisAutoIncr} {
			if !slices.Contains(place.ways, to) {
				row = append(row, "", "")
				continue
			}
			beside := ratios(of(own, rate), of(samples[to], rate))
			row = append(row, median(beside), spread(beside))
		}
		m.result.add(append(row, loadAverage())...)
	}
}

func of(samples []countSample, field func(countSample) float64) []float64 {
	all := make([]float64, len(samples))
	for i, sample := range samples {
		all[i] = field(sample)
	}
	return all
}
