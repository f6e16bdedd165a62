package chicheck

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

func send(router http.Handler, path string) string {
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader("12.99 EUR"))
	request.Header.Set("Idempotency-Key", "k")
	told := httptest.NewRecorder()
	router.ServeHTTP(told, request)
	return fmt.Sprintf("%d %s %q", told.Code, strings.TrimSpace(told.Body.String()), told.Header().Get("Idempotent-Replayed"))
}

// chi's parameters reach the handler, a repeat is replayed, another path is another request, and a
// panic leaves the outcome in doubt behind chi's own Recoverer.
func TestPlainMiddlewareFitsChi(t *testing.T) {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	expect.Error(t, "Open", err, nil)
	defer store.Close()
	tokens := idempotency.New(store, idempotency.Config{})
	defer tokens.Close(ctx)
	runs := 0
	pay := func(w http.ResponseWriter, r *http.Request) {
		runs++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "order ", chi.URLParam(r, "id"))
	}
	route := idempotency.Route{Name: "pay"}
	router := chi.NewRouter()
	router.Use(middleware.RequestID)
	router.With(tokens.Middleware(route)).Post("/orders/{id}/payments", pay)
	router.With(middleware.Recoverer, tokens.Middleware(idempotency.Route{Name: "broken"})).Post("/broken", func(http.ResponseWriter, *http.Request) {
		runs++
		panic("in the middle of it")
	})

	expect.Equal(t, "the first request", send(router, "/orders/7/payments"), `201 order 7 ""`)
	expect.Equal(t, "its repeat", send(router, "/orders/7/payments"), `201 order 7 "true"`)
	expect.Equal(t, "status of the key at another path", send(router, "/orders/8/payments")[:3], "422")
	expect.Equal(t, "status of a panic", send(router, "/broken")[:3], "500")
	expect.Equal(t, "status of its repeat", send(router, "/broken")[:3], "409")
	expect.Equal(t, "runs of handlers", runs, 2)
}

// A handler that ends with its time has told nothing. The answer is that of chi's own middleware,
// and the outcome is unknown.
func TestTimeLimitOfChiLeavesTheOutcomeUnknown(t *testing.T) {
	for _, around := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			store, err := redisstore.Open(ctx, "embedded:")
			expect.Error(t, "Open", err, nil)
			defer store.Close()
			tokens := idempotency.New(store, idempotency.Config{})
			defer tokens.Close(ctx)
			chain := chi.Middlewares{middleware.Timeout(time.Second), tokens.Middleware(idempotency.Route{Name: "pay"})}
			if !around {
				slices.Reverse(chain)
			}
			router, runs := chi.NewRouter(), 0
			router.With(chain...).Post("/pay", func(_ http.ResponseWriter, r *http.Request) {
				runs++
				<-r.Context().Done()
			})
			expect.Equal(t, "the first request", send(router, "/pay"), `504  ""`)
			expect.Equal(t, "the status of its repeat", send(router, "/pay")[:3], "409")
			expect.Equal(t, "runs of the handler", runs, 1)
		})
	}
}
