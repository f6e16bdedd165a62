package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/coatcheck/coatcheck/client"
	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// The service here runs in the same process; yours is a URL.
func ExampleClient_Do() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	inner := server.New(server.Config{Store: store})
	defer inner.Close(ctx)
	service := httptest.NewServer(inner.Handler())
	defer service.Close()

	tokens, err := client.New(client.Config{URL: service.URL})
	if err != nil {
		log.Fatal(err)
	}
	defer tokens.CloseIdleConnections()
	token, err := tokens.Issue(ctx, "", 0)
	if err != nil {
		log.Fatal(err)
	}

	options := client.ClaimOptions{Fingerprint: client.Fingerprint("charge", "order-42", "12.99 EUR")}
	charge := func(_ context.Context, attempt *client.Attempt) ([]byte, error) {
		fmt.Println("charging, attempt", attempt.Number)
		return []byte("paid"), nil
	}
	for range 2 { // a job that is delivered twice
		result, err := tokens.Do(ctx, token.Value, options, charge)
		if err != nil {
			log.Fatal(err) // errors.Is finds client.ErrInProgress, client.ErrInDoubt, …
		}
		fmt.Printf("%s, replayed: %t\n", result.Value, result.Replayed)
	}
	// Output:
	// charging, attempt 1
	// paid, replayed: false
	// paid, replayed: true
}

// A program without Redis stamps ids that no other process stamps: it leases a worker id of the
// service, and asks for nothing more but its renewals.
func ExampleClient_StampWorker() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	inner := server.New(server.Config{Store: store, Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust}})
	defer inner.Close(ctx)
	service := httptest.NewServer(inner.Handler())
	defer service.Close()

	workers, err := client.New(client.Config{URL: service.URL})
	if err != nil {
		log.Fatal(err)
	}
	defer workers.CloseIdleConnections()
	request := client.WorkerRequest{Identity: "orders-0", Layout: "41/10/12"}
	ids, err := workers.StampWorker(ctx, "orders", request, client.HoldOptions{Wait: time.Minute}, snowflake.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		id, err := ids.Next(ctx)
		if err != nil {
			// snowflake.ErrNoLease, snowflake.ErrWindowEnded: try again when the service is there
			log.Fatal(err)
		}
		layout, epoch, _ := ids.Layout() // the pool's
		fmt.Println("stamped with worker id", layout.Decode(id, epoch).Worker)
	}
	if err := ids.Close(ctx); err != nil { // the next holder's window begins after the last id
		log.Fatal(err)
	}
	// Output:
	// stamped with worker id 0
	// stamped with worker id 0
	// stamped with worker id 0
}
