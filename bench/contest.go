package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// side is one side of a comparison.
type side struct {
	name   string
	args   []string // of the command that serves
	replay bool     // the load is repeats of completed requests
	plain  bool     // it does not guard
	tokens bool     // operations are named by tokens that were issued before
}

// contest is a running comparison: a redis-server and one server for each side.
type contest struct {
	baseline string // the name of the side that the others are compared with
	sides    []side
	servers  []*server
	behind   *server // the service behind all servers; nil if they are the service themselves
	redis    *redisServer
	span     time.Duration
	samples  map[match][]sample
}

// match is one side at one number of connections.
type match struct {
	side  string
	conns int
}

// sample is what one measured span gave.
type sample struct {
	rate                float64 // requests a second
	p50, p99            float64 // microseconds
	server, redis, load float64 // microseconds of processor time for each request
	reads               float64 // of Redis from its connections, for each request

	// In comparison with the same round's.
	rateRatio, workRatio float64 // of the baseline
	addedP50             float64 // to the baseline's, microseconds
}

// work is the processor time that a request cost in all, in microseconds.
func (s sample) work() float64 { return s.server + s.redis + s.load }

// newContest starts the servers. The caller ends the contest.
func newContest(ctx context.Context, baseline string, sides []side, span time.Duration) (*contest, error) {
	redis, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	c := &contest{baseline: baseline, sides: sides, redis: redis, span: span, samples: map[match][]sample{}}
	for _, side := range sides {
		server, err := startServer(ctx, append(slices.Clone(side.args), "-redis", redis.url())...)
		if err != nil {
			return nil, errors.Join(err, c.end())
		}
		c.servers = append(c.servers, server)
	}
	return c, nil
}

// end ends all servers. The error is what one of them had to say in the end.
func (c *contest) end() error {
	var errs []error
	for _, server := range c.servers {
		errs = append(errs, server.stop())
	}
	if c.behind != nil {
		errs = append(errs, c.behind.stop())
	}
	c.redis.end()
	return errors.Join(errs...)
}

// play measures all sides in turns. In each round another side begins, so that none always follows
// the same one.
func (c *contest) play(ctx context.Context, rounds int, conns []int) error {
	for round := range rounds {
		for _, n := range conns {
			found := map[string]sample{}
			for i := range c.sides {
				at := (i + round) % len(c.sides)
				sample, err := c.measure(ctx, at, n)
				if err != nil {
					return fmt.Errorf("%s at %d connections: %w", c.sides[at].name, n, err)
				}
				found[c.sides[at].name] = sample
			}
			c.note(n, found)
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, rounds)
	}
	return nil
}

// note keeps a round's samples, each compared with those of the same round.
func (c *contest) note(conns int, found map[string]sample) {
	base := found[c.baseline]
	for name, sample := range found {
		sample.rateRatio = sample.rate / base.rate
		sample.workRatio = base.work() / sample.work()
		sample.addedP50 = sample.p50 - base.p50
		at := match{name, conns}
		c.samples[at] = append(c.samples[at], sample)
	}
}

// measure runs one span of load against one side, on an empty Redis, and checks that the handler
// ran as often as it should have.
func (c *contest) measure(ctx context.Context, at, conns int) (sample, error) {
	side, server := c.sides[at], c.servers[at]
	service := server
	if c.behind != nil {
		service = c.behind
	}
	if err := c.redis.FlushAll(ctx).Err(); err != nil {
		return sample{}, err
	}
	before, err := service.number(ctx, "/runs")
	if err != nil {
		return sample{}, err
	}
	load, used, err := c.load(ctx, server, side, conns)
	if err != nil {
		return sample{}, err
	}
	after, err := service.number(ctx, "/runs")
	if err != nil {
		return sample{}, err
	}
	want := load.Sent
	if side.replay {
		want = conns
	}
	if ran := int(after - before); ran != want {
		return sample{}, fmt.Errorf("the handler ran %d times and not %d", ran, want)
	}
	n := float64(max(load.Measured, 1))
	return sample{
		rate: n / load.Seconds, p50: load.P50, p99: load.P99,
		server: used.server / n, redis: used.redis / n, load: load.Processor / n, reads: used.reads / n,
	}, nil
}

// costs are what servers have used since they started.
type costs struct {
	server, redis float64 // microseconds of processor time
	reads         float64 // of Redis from its connections
}

// load runs the generator, and takes the costs of the measured span.
func (c *contest) load(ctx context.Context, server *server, side side, conns int) (result loadResult, used costs, err error) {
	args := []string{"load", "-addr", server.addr, "-conns", strconv.Itoa(conns), "-span", c.span.String(),
		"-warm", min(c.span, 200*time.Millisecond).String(), "-replay=" + strconv.FormatBool(side.replay),
		"-plain=" + strconv.FormatBool(side.plain)}
	if side.tokens {
		args = append(args, "-tokens", server.control)
	}
	generator, err := again(ctx, args...)
	if err != nil {
		return result, used, err
	}
	defer generator.end()
	if _, err := generator.line(); err != nil {
		return result, used, err
	}
	before, err := c.costs(ctx, server)
	if err != nil {
		return result, used, err
	}
	line, err := generator.line()
	if err != nil {
		return result, used, err
	}
	after, err := c.costs(ctx, server)
	if err != nil {
		return result, used, err
	}
	used = costs{server: after.server - before.server, redis: after.redis - before.redis, reads: after.reads - before.reads}
	return result, used, json.Unmarshal([]byte(line), &result)
}

func (c *contest) costs(ctx context.Context, server *server) (used costs, err error) {
	if used.server, err = server.number(ctx, "/cpu"); err != nil {
		return used, err
	}
	if c.behind != nil {
		behind, err := c.behind.number(ctx, "/cpu")
		if err != nil {
			return used, err
		}
		used.server += behind
	}
	if used.redis, err = c.redis.cpu(ctx); err != nil {
		return used, err
	}
	used.reads, err = c.redis.number(ctx, "stats", "total_reads_processed")
	return used, err
}

// figures are the columns of a comparison, each the median of all rounds.
var figures = []struct {
	name string
	of   func(sample) float64
}{
	{"requests/s", func(s sample) float64 { return s.rate }},
	{"ratio", func(s sample) float64 { return s.rateRatio }},
	{"ratio by work", func(s sample) float64 { return s.workRatio }},
	{"p50 µs", func(s sample) float64 { return s.p50 }},
	{"p99 µs", func(s sample) float64 { return s.p99 }},
	{"added p50 µs", func(s sample) float64 { return s.addedP50 }},
	{"server µs", func(s sample) float64 { return s.server }},
	{"redis µs", func(s sample) float64 { return s.redis }},
	{"client µs", func(s sample) float64 { return s.load }},
	{"redis reads", func(s sample) float64 { return s.reads }},
}

// table gives the medians of all rounds.
func (c *contest) table(ctx context.Context, title string, plan plan) (*table, error) {
	machine, err := machine(ctx, c.redis)
	if err != nil {
		return nil, err
	}
	t := &table{
		Title: title, When: time.Now().UTC(), Machine: machine, Rounds: plan.rounds, Seconds: plan.seconds,
		Columns: []string{"connections", "side", "middle half of ratio"},
	}
	for _, figure := range figures {
		t.Columns = append(t.Columns, figure.name)
	}
	for _, n := range plan.conns {
		for _, side := range c.sides {
			samples := c.samples[match{side.name, n}]
			row := []any{n, side.name, spread(each(samples, func(s sample) float64 { return s.rateRatio }))}
			t.keep(fmt.Sprintf("connections: %d", n), side.name, "requests/s", each(samples, func(s sample) float64 { return s.rate }))
			t.keep(fmt.Sprintf("connections: %d, added", n), side.name, "µs", each(samples, func(s sample) float64 { return s.addedP50 }))
			for _, figure := range figures {
				row = append(row, median(each(samples, figure.of)))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t, nil
}

func each(samples []sample, field func(sample) float64) []float64 {
	all := make([]float64, len(samples))
	for i, sample := range samples {
		all[i] = field(sample)
	}
	return all
}
