package echov5_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v5"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/echov5"
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
	pay := func(*echo.Context) error {
		fmt.Println("the card is asked")
		return echo.NewHTTPError(http.StatusPaymentRequired, "the card was refused")
	}
	e := echo.New()
	e.POST("/payments", pay, echov5.Wrap(tokens.Middleware(idempotency.Route{Name: "payments"})))

	for range 2 { // the client repeats its request
		request := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount": 100}`))
		request.Header.Set("Idempotency-Key", "order-4711")
		told := httptest.NewRecorder()
		e.ServeHTTP(told, request)
		fmt.Println(told.Code, strings.TrimSpace(told.Body.String()))
	}
	// Output:
	// the card is asked
	// 402 {"message":"the card was refused"}
	// 402 {"message":"the card was refused"}
}
