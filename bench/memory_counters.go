package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/redisstore"
)

// memoryOfCounters sees what n counters take in Redis, and n increments with request ids.
func memoryOfCounters(ctx context.Context, t *table, n int) (err error) {
	redis, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.end()
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: redis.url(), Timeout: patience})
	if err != nil {
		return err
	}
	counters := counter.New(store, counter.Config{})
	defer func() { err = errors.Join(err, counters.Close(), store.Close()) }()
	warm := func(i int) error { _, err := counters.Incr(ctx, "warm-"+strconv.Itoa(i)); return err }
	if err := forEach(ctx, warm, 1000); err != nil { // connections are made
		return err
	}
	before, err := redis.memory(ctx)
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		figure string
		add    func(i int) error
	}{
		{"a counter, with its place on the list", func(i int) error {
			_, err := counters.Incr(ctx, fmt.Sprintf("orders-%08d", i))
			return err
		}},
		{"a request id of an increment", func(i int) error {
			_, err := counters.Add(ctx, "orders", counter.Request{RequestID: fmt.Sprintf("request-%08d", i)})
			return err
		}},
	} {
		if err := forEach(ctx, kind.add, n); err != nil {
			return err
		}
		after, err := redis.memory(ctx)
		if err != nil {
			return err
		}
		t.add(kind.figure, n, (after-before)/float64(n), "bytes")
		before = after
	}
	return nil
}
