package counter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
)

func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // redis://… in production
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	counters := counter.New(store, counter.Config{})
	defer counters.Close()

	value, err := counters.Incr(ctx, "orders")
	fmt.Println(value, err)

	// ten values at once: the caller owns First to Last
	got, err := counters.IncrBy(ctx, "orders", 10)
	fmt.Println(got.First, got.Last, err)
	// Output:
	// 1 <nil>
	// 2 11 <nil>
}

// After a lost reply the same request id gets the same values, and adds once.
func ExampleCounters_Add() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	counters := counter.New(store, counter.Config{})
	defer counters.Close()

	for range 2 {
		got, err := counters.Add(ctx, "invoices", counter.Request{By: 3, RequestID: "order-42"})
		fmt.Println(got.First, got.Last, err)
	}
	// Output:
	// 1 3 <nil>
	// 1 3 <nil>
}

// A trial of three exports a day for each customer. Whoever begins the counter decides when it
// ends.
func ExampleCounters_Add_limit() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	counters := counter.New(store, counter.Config{})
	defer counters.Close()

	for range 4 {
		got, err := counters.Add(ctx, "exports:customer-4711", counter.Request{Limit: 3, TTL: 24 * time.Hour})
		if errors.Is(err, counter.ErrLimit) {
			fmt.Println("come back tomorrow")
			continue
		}
		fmt.Println("export", got.Last, "of 3", err)
	}
	// Output:
	// export 1 of 3 <nil>
	// export 2 of 3 <nil>
	// export 3 of 3 <nil>
	// come back tomorrow
}
