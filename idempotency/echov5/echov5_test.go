package echov5_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/echov5"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// answer is what a client is told.
type answer struct {
	Status   int
	Body     string
	Replayed string // the header Idempotent-Replayed
}

func send(e *echo.Echo, key string) answer {
	request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/payments", strings.NewReader(`{"amount": 1}`))
	request.Header.Set("Idempotency-Key", key)
	told := httptest.NewRecorder()
	e.ServeHTTP(told, request)
	return answer{told.Code, strings.TrimSpace(told.Body.String()), told.Header().Get("Idempotent-Replayed")}
}

// service is an Echo service whose payment is guarded.
func service(t *testing.T, handler echo.HandlerFunc) *echo.Echo {
	tokens := idempotency.New(storetest.Open(t, redisstore.Config{URL: "embedded:"}), idempotency.Config{})
	t.Cleanup(func() { expect.Error(t, "Close", tokens.Close(context.Background()), nil) })
	e := echo.New()
	e.Use(middleware.Recover())
	e.POST("/payments", handler, echov5.Wrap(tokens.Middleware(idempotency.Route{Name: "payments", Lease: time.Hour})))
	return e
}

func TestAnswerOfAHandlerIsToldAndReplayed(t *testing.T) {
	for name, row := range map[string]struct {
		handler echo.HandlerFunc
		want    answer
	}{
		"an answer":                   {func(c *echo.Context) error { return c.String(http.StatusCreated, "paid") }, answer{201, "paid", ""}},
		"an HTTP error":               {func(*echo.Context) error { return echo.NewHTTPError(402, "") }, answer{402, `{"message":"Payment Required"}`, ""}},
		"an HTTP error with a text":   {func(*echo.Context) error { return echo.NewHTTPError(402, "no money") }, answer{402, `{"message":"no money"}`, ""}},
		"a plain error":               {func(*echo.Context) error { return errors.New("secret") }, answer{500, `{"message":"Internal Server Error"}`, ""}},
		"an error after the answer":   {func(c *echo.Context) error { _ = c.String(202, "begun"); return errors.New("late") }, answer{202, "begun", ""}},
		"neither answer nor an error": {func(*echo.Context) error { return nil }, answer{200, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			e := service(t, func(c *echo.Context) error { runs.Add(1); return row.handler(c) })
			expect.Equal(t, "the first request", send(e, "k"), row.want)
			again := row.want
			again.Replayed = "true"
			expect.Equal(t, "its repeat", send(e, "k"), again)
			expect.Equal(t, "runs of the handler", runs.Load(), 1)
		})
	}
}

func TestPanicOfAHandlerLeavesTheOutcomeUnknown(t *testing.T) {
	var runs atomic.Int64
	e := service(t, func(*echo.Context) error { runs.Add(1); panic("in the middle of it") })
	expect.Equal(t, "the status of the first request", send(e, "k").Status, 500)
	expect.Equal(t, "the status of its repeat", send(e, "k").Status, 409)
	expect.Equal(t, "runs of the handler", runs.Load(), 1)
}

// What the middleware gives to the handler arrives, and Echo's middleware outside sees the response
// that it knows.
func TestHandlerHasTheMiddlewaresRequest(t *testing.T) {
	type key struct{}
	inner := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, "given")))
		})
	}
	e := echo.New()
	status, same := 0, false
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			before := c.Response()
			err := next(c)
			response, _ := echo.UnwrapResponse(c.Response())
			status, same = response.Status, c.Response() == before
			return err
		}
	})
	e.POST("/payments", func(c *echo.Context) error {
		return c.String(http.StatusTeapot, c.Request().Context().Value(key{}).(string))
	}, echov5.Wrap(inner))
	expect.Equal(t, "the answer", send(e, ""), answer{http.StatusTeapot, "given", ""})
	expect.Equal(t, "the status that middleware outside sees", status, http.StatusTeapot)
	expect.Equal(t, "the response outside is the one of before", same, true)
}

// The handler's context ends with it, and middleware outside may have something to do yet.
func TestRequestOutsideOutlivesTheHandler(t *testing.T) {
	e := service(t, func(c *echo.Context) error { return c.String(http.StatusCreated, "paid") })
	outside := errors.New("not asked")
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			err := next(c)
			outside = c.Request().Context().Err()
			return err
		}
	})
	expect.Equal(t, "the answer", send(e, "k"), answer{http.StatusCreated, "paid", ""})
	expect.Error(t, "the end of the request's context outside, after the handler", outside, nil)
}

// A limit after the guard may say nothing itself, and neither does a handler that ends with it.
func TestTimeLimitThatAnswersNothingIsNotToldAsDone(t *testing.T) {
	for slow, want := range map[bool][2]int{true: {504, 409}, false: {200, 200}} {
		synctest.Test(t, func(t *testing.T) {
			tokens := idempotency.New(storetest.Open(t, redisstore.Config{URL: "embedded:"}), idempotency.Config{})
			defer tokens.Close(context.Background())
			e := echo.New()
			e.POST("/payments", func(c *echo.Context) error {
				if slow {
					<-c.Request().Context().Done()
				}
				return nil
			}, echov5.Wrap(tokens.Middleware(idempotency.Route{Name: "payments"})), middleware.ContextTimeout(time.Second))
			expect.Equal(t, "the first status, and that of its repeat", [2]int{send(e, "k").Status, send(e, "k").Status}, want)
		})
	}
}

// A handler that ends with its time has told nothing. The answer is Echo's own, and the outcome is
// unknown.
func TestTimeLimitOfEchoLeavesTheOutcomeUnknown(t *testing.T) {
	for _, around := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			tokens := idempotency.New(storetest.Open(t, redisstore.Config{URL: "embedded:"}), idempotency.Config{})
			defer tokens.Close(context.Background())
			chain := []echo.MiddlewareFunc{middleware.ContextTimeout(time.Second), echov5.Wrap(tokens.Middleware(idempotency.Route{Name: "payments"}))}
			if !around {
				slices.Reverse(chain)
			}
			e, runs := echo.New(), 0
			e.POST("/payments", func(c *echo.Context) error {
				runs++
				<-c.Request().Context().Done()
				return c.Request().Context().Err()
			}, chain...)
			expect.Equal(t, "the status of the first request", send(e, "k").Status, 503)
			expect.Equal(t, "the status of its repeat", send(e, "k").Status, 409)
			expect.Equal(t, "runs of the handler", runs, 1)
		})
	}
}
