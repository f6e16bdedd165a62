package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// allStarted is what the workers command measures.
const allStarted = "until all processes are there"

// workersCommand starts many processes at once, each of which leases a worker id of one pool, and
// sees how long it takes until all have theirs, each another one.
func workersCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("workers", flag.ContinueOnError)
	n := flags.Int("processes", 1000, "processes that start at once; the ring has 1024 worker ids")
	rounds := flags.Int("rounds", 3, "how often")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *n < 1 || *n > 1024 || *rounds < 1 {
		return usageError{fmt.Errorf("%d processes, %d rounds: 1 to 1024, and one round at least", *n, *rounds)}
	}
	redis, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.end()
	machine, err := machine(ctx, redis)
	if err != nil {
		return err
	}
	t := &table{
		Title: "workers", When: time.Now().UTC(), Machine: machine, Rounds: *rounds,
		Columns: []string{"round", "processes", "worker ids", "all after s", "all alone after s", "ratio"},
	}
	var all, none []float64
	for round := range *rounds {
		ids, leased, err := crowd(ctx, *n, "lease", redis.url(), fmt.Sprintf("crowd-%d", round))
		if err != nil {
			return err
		}
		_, alone, err := crowd(ctx, *n, "lease", "", "")
		if err != nil {
			return err
		}
		t.add(strconv.Itoa(round+1), *n, len(ids), leased.Seconds(), alone.Seconds(), leased.Seconds()/alone.Seconds())
		all, none = append(all, leased.Seconds()), append(none, alone.Seconds())
		if len(ids) != *n {
			return fmt.Errorf("%d processes have %d worker ids", *n, len(ids))
		}
	}
	t.keep(allStarted, "that lease a worker id", "s", all)
	t.keep(allStarted, "that lease nothing", "s", none)
	return out.write(stdout, t)
}

// crowd starts processes at once and waits until each has printed its worker id; those are kept
// until the last has. Without a Redis they only start.
func crowd(ctx context.Context, n int, args ...string) (ids map[string]bool, took time.Duration, err error) {
	began := time.Now()
	children := make([]*child, 0, n)
	defer func() {
		for _, c := range children {
			_ = c.stdin.Close() // all at once
		}
		for _, c := range children {
			err = errors.Join(err, c.stop())
		}
	}()
	for range n {
		c, err := again(ctx, args...)
		if err != nil {
			return nil, 0, err
		}
		children = append(children, c)
	}
	ids = map[string]bool{}
	for _, c := range children {
		line, err := c.line()
		if err != nil {
			return nil, 0, err
		}
		ids[line] = true
	}
	return ids, time.Since(began), nil
}

// leaseCommand leases one worker id, prints it, and holds it until its input ends. Without a Redis
// it prints nothing but a line.
func leaseCommand(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) (err error) {
	if len(args) != 2 {
		return usageError{errors.New("the URL of a Redis and a pool belong here")}
	}
	line := "-"
	if args[0] != "" {
		store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: args[0], Timeout: time.Minute})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
		lease, err := pools.Acquire(ctx, args[1], workerlease.Request{
			TTL: time.Hour, Shape: workerlease.Shape{Layout: snowflake.DefaultLayout, Epoch: snowflake.DefaultEpoch},
		})
		if err != nil {
			return err
		}
		line = strconv.Itoa(lease.WorkerID)
	}
	if _, err := fmt.Fprintln(stdout, line); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}
