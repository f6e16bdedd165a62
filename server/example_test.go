package server_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// The service as a handler of a program of your own.
func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:") // redis://… in production
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	service := server.New(server.Config{Store: store})
	defer service.Close(ctx)

	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/incr/orders?by=10", http.NoBody)
	answer := httptest.NewRecorder()
	service.Handler().ServeHTTP(answer, request)
	fmt.Print(answer.Code, " ", answer.Body)
	// Output: 200 {"key":"orders","value":10,"first":1}
}
