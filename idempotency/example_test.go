package idempotency_test

import (
	"context"
	"fmt"
	"log"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A job under a one-use token: it runs once, and a repeat gets what was recorded. The middleware
// does the same for HTTP handlers.
func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // redis://… in production
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer tokens.Close(ctx)

	token, err := tokens.Issue(ctx, "worker-1", "charges", 0)
	if err != nil {
		log.Fatal(err)
	}
	key := idempotency.IssuedToken("worker-1", token.Value)
	for range 2 {
		result, err := tokens.Do(ctx, key, idempotency.ClaimOptions{Scope: "charges"}, func(context.Context) ([]byte, error) {
			fmt.Println("charging")
			return []byte("charged 12.99 EUR"), nil
		})
		fmt.Printf("%s, replayed: %t, error: %v\n", result.Value, result.Replayed, err)
	}
	// Output:
	// charging
	// charged 12.99 EUR, replayed: false, error: <nil>
	// charged 12.99 EUR, replayed: true, error: <nil>
}
