package fiberv3_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/fiberv3"
	"github.com/coatcheck/coatcheck/redisstore"
)

// A payment is refused once, and its repeat gets the same refusal.
func ExampleWrap() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		panic(err)
	}
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer func() { _ = tokens.Close(ctx) }()
	pay := func(fiber.Ctx) error {
		fmt.Println("the card is asked")
		return fiber.NewError(http.StatusPaymentRequired, "the card was refused")
	}
	app := fiber.New()
	app.Post("/payments", fiberv3.Wrap(tokens.Middleware(idempotency.Route{})), pay)

	for range 2 { // the client repeats its request
		request := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount": 100}`))
		request.Header.Set("Idempotency-Key", "order-4711")
		answer, err := app.Test(request)
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(answer.Body)
		fmt.Println(answer.StatusCode, string(body))
	}
	// Output:
	// the card is asked
	// 402 the card was refused
	// 402 the card was refused
}
