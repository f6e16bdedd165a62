package metrics_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/coatcheck/coatcheck/counter"
	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// Metrics of a store by OpenTelemetry: an observer of a few lines.
func Example_openTelemetry() {
	ctx := context.Background()
	took, err := otel.Meter("shop").Float64Histogram("coatcheck.redis.call.duration", metric.WithUnit("s"))
	if err != nil {
		log.Fatal(err)
	}
	seconds := observe.Observer{CallEnded: func(ctx context.Context, call observe.Call) {
		took.Record(ctx, call.Took.Seconds(), metric.WithAttributes(attribute.String("script", call.Op), attribute.Bool("failed", call.Err != nil)))
	}}
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{seconds}})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	counters := counter.New(store, counter.Config{})
	defer counters.Close()
	fmt.Println(counters.Incr(ctx, "orders"))
	// Output: 1 <nil>
}
