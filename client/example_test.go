package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/coatcheck/coatcheck/client"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// The service here runs in the same process; yours is a URL.
func ExampleClient_Do() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	service := httptest.NewServer(server.New(server.Config{Store: store}).Handler())
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

	terms := client.Terms{Fingerprint: client.Fingerprint("charge", "order-42", "12.99 EUR")}
	charge := func(_ context.Context, attempt *client.Attempt) (client.Answer, error) {
		fmt.Println("charging, attempt", attempt.Number)
		return client.Answer{Status: 201, Body: []byte("paid")}, nil
	}
	for range 2 { // a job that is delivered twice
		result, err := tokens.Do(ctx, token.Value, terms, charge)
		if err != nil {
			log.Fatal(err) // errors.Is tells: client.ErrInProgress, client.ErrInDoubt, …
		}
		fmt.Printf("%s, replayed: %t\n", result.Answer.Body, result.Replayed)
	}
	// Output:
	// charging, attempt 1
	// paid, replayed: false
	// paid, replayed: true
}
