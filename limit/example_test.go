package limit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/redisstore"
)

func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // redis://… in production
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limits := limit.New(store, limit.Config{})
	defer limits.Close()

	hourly := limit.Rate{N: 10, Per: time.Hour, Burst: 2}
	for range 3 {
		state, err := limits.Take(ctx, "sms:customer-17", hourly, 1)
		if reached, is := errors.AsType[*limit.ReachedError](err); is {
			fmt.Println("again in", reached.Wait.Round(time.Minute))
			continue
		}
		fmt.Println(state.Remaining, "remain", err)
	}
	// Output:
	// 1 remain <nil>
	// 0 remain <nil>
	// again in 6m0s
}
