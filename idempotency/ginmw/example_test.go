package ginmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gin-gonic/gin"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/ginmw"
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
	pay := func(c *gin.Context) {
		fmt.Println("the card is asked")
		c.JSON(http.StatusPaymentRequired, gin.H{"message": "the card was refused"})
	}
	e := gin.New()
	e.POST("/payments", ginmw.Wrap(tokens.Middleware(idempotency.Route{})), pay)

	for range 2 { // the client repeats its request
		request := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"amount": 100}`))
		request.Header.Set("Idempotency-Key", "order-4711")
		answer := httptest.NewRecorder()
		e.ServeHTTP(answer, request)
		fmt.Println(answer.Code, strings.TrimSpace(answer.Body.String()))
	}
	// Output:
	// the card is asked
	// 402 {"message":"the card was refused"}
	// 402 {"message":"the card was refused"}
}
