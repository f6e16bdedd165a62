package metrics_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coatcheck/coatcheck/counter"
	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A program of your own has all metrics of its store in the registry that it has.
func ExampleStore_Show() {
	ctx, registry := context.Background(), prometheus.NewRegistry()

	counted := metrics.NewStore("1.4.0") // the version of your program
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{counted.Observer()}})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	tokens, counters := idempotency.New(store, idempotency.Config{}), counter.New(store, counter.Config{})
	pools := workerlease.New(store, workerlease.Config{})

	counted.Show(metrics.Program{Store: store, Tokens: tokens, Counters: counters, Workers: pools})
	registry.MustRegister(counted.Collector())

	_, _ = counters.Incr(ctx, "orders")
	families, err := registry.Gather()
	for _, family := range families {
		switch name := family.GetName(); {
		case strings.HasPrefix(name, "coatcheck_operations"), strings.HasPrefix(name, "coatcheck_worker_ring"),
			strings.HasSuffix(name, "_pending"):
			fmt.Println(name)
		}
	}
	fmt.Println(err, counters.Close(), tokens.Close(ctx))
	// Output:
	// coatcheck_operations_in_doubt
	// coatcheck_operations_in_doubt_oldest_seconds
	// coatcheck_redis_pool_pending
	// coatcheck_worker_ring_age_seconds
	// coatcheck_worker_ring_pools
	// coatcheck_worker_ring_slots
	// <nil> <nil> <nil>
}
