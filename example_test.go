package coatcheck_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A payment handler behind the idempotency middleware: two posts with one key, one run, one answer.
func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // or redis://localhost:6379
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer tokens.Close(ctx)

	pay := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := idempotency.FromContext(r.Context())
		fmt.Println("charging, attempt", attempt.Number)
		fmt.Fprint(w, "paid")
	})
	mux := http.NewServeMux()
	tokens.Handle(mux, "POST /payments", idempotency.Route{Accept: idempotency.AcceptEither}, pay)

	for range 2 { // a double click
		request := httptest.NewRequestWithContext(ctx, "POST", "/payments", strings.NewReader("12.99 EUR"))
		request.Header.Set("Idempotency-Key", "order-42")
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, request)
		fmt.Printf("%s, replayed: %q\n", answer.Body, answer.Header().Get("Idempotent-Replayed"))
	}
	// Output:
	// charging, attempt 1
	// paid, replayed: ""
	// paid, replayed: "true"
}
