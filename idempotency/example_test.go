package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// open makes tokens on a store in memory. In production the URL is redis://…
func open(ctx context.Context) (tokens *idempotency.Tokens, end func()) {
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		log.Fatal(err)
	}
	tokens = idempotency.New(store, idempotency.Config{})
	return tokens, func() {
		_ = tokens.Close(ctx) // there is nothing left to record
		_ = store.Close()
	}
}

// A handler under a key of the client's: it runs once, and a repeat gets its answer.
func ExampleTokens_Middleware() {
	tokens, end := open(context.Background())
	defer end()
	pay := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Println("charging")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "charged 12.99 EUR")
	}
	mux := http.NewServeMux()
	tokens.Handle(mux, "POST /payments", idempotency.Route{}, http.HandlerFunc(pay))
	for range 2 {
		request := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount":1299}`))
		request.Header.Set(idempotency.KeyHeader, "order-42")
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, request)
		fmt.Printf("%d %s, replayed: %t\n", answer.Code, answer.Body, answer.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// charging
	// 201 charged 12.99 EUR, replayed: false
	// 201 charged 12.99 EUR, replayed: true
}

// A message of a queue that is delivered twice: its id is the key, and it is handled once.
func ExampleTokens_Do() {
	ctx := context.Background()
	tokens, end := open(ctx)
	defer end()
	key := idempotency.Key{Scope: "orders", ID: "message-42"} // principal, scope and key
	for range 2 {
		result, err := tokens.Do(ctx, key, idempotency.ClaimOptions{}, func(context.Context, *idempotency.Attempt) ([]byte, error) {
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

// A token that is issued before, so that only what was asked for can run.
func ExampleTokens_Do_token() {
	ctx := context.Background()
	tokens, end := open(ctx)
	defer end()
	token, err := tokens.Issue(ctx, "worker-1", "charges", 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{token.Value, "made-up"} {
		_, err := tokens.Do(ctx, idempotency.IssuedToken("worker-1", text), idempotency.ClaimOptions{Scope: "charges"},
			func(context.Context, *idempotency.Attempt) ([]byte, error) {
				fmt.Println("charging")
				return nil, nil
			})
		fmt.Println("unknown:", errors.Is(err, idempotency.ErrUnknownToken))
	}
	// Output:
	// charging
	// unknown: false
	// unknown: true
}

// A parcel that one process sends and another sees arrive: the steps, one by one.
func ExampleTokens_Claim() {
	ctx := context.Background()
	tokens, end := open(ctx)
	defer end()
	key := idempotency.Key{Scope: "parcels", ID: "parcel-42"}
	options := idempotency.ClaimOptions{Fingerprint: "to Bergen", Lease: time.Hour}
	first, err := tokens.Claim(ctx, key, options)
	if err != nil || !first.Granted {
		log.Fatal(first, err)
	}
	// the owner is the proof, which goes along with the parcel
	_, err = tokens.Claim(ctx, key, options)
	fmt.Println("another process, in progress:", errors.Is(err, idempotency.ErrInProgress))
	if _, err := tokens.Extend(ctx, key, first.Grant.LeaseToken, time.Hour); err != nil {
		log.Fatal(err)
	}
	answer := idempotency.Answer{Status: http.StatusOK, Body: []byte("delivered")}
	if err := tokens.Complete(ctx, key, first.Grant.LeaseToken, answer); err != nil {
		log.Fatal(err)
	}
	again, err := tokens.Claim(ctx, key, options)
	fmt.Printf("granted: %t, %s, error: %v\n", again.Granted, again.Answer.Body, err)
	// Output:
	// another process, in progress: true
	// granted: false, delivered, error: <nil>
}
