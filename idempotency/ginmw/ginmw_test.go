package ginmw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/ginmw"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	m.Run()
}

// answer is what a client gets.
type answer struct {
	Status   int
	Body     string
	Replayed string // the header Idempotent-Replayed
}

// send pays with the key k.
func send(e *gin.Engine, path, body string) answer {
	request := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, strings.NewReader(body))
	request.Header.Set("Idempotency-Key", "k")
	got := httptest.NewRecorder()
	e.ServeHTTP(got, request)
	return answer{got.Code, strings.TrimSpace(got.Body.String()), got.Header().Get("Idempotent-Replayed")}
}

// newTokens are tokens on a store of their own, with the log.
func newTokens(t *testing.T) (*idempotency.Tokens, *logtest.Text) {
	t.Helper()
	store, err := redisstore.Open(t.Context(), "embedded:")
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	log := &logtest.Text{}
	tokens := idempotency.New(store, idempotency.Config{Logger: log.Logger()})
	t.Cleanup(func() {
		expect.Error(t, "Close", tokens.Close(context.Background()), nil)
		expect.Error(t, "closing the store", store.Close(), nil)
	})
	return tokens, log
}

// service is a Gin service whose orders are guarded.
func service(t *testing.T, handlers ...gin.HandlerFunc) *gin.Engine {
	t.Helper()
	tokens, _ := newTokens(t)
	e := gin.New()
	e.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	guard := ginmw.Wrap(tokens.Middleware(idempotency.Route{Lease: time.Hour}))
	e.POST("/orders/:id", append([]gin.HandlerFunc{guard}, handlers...)...)
	return e
}

func TestAnswerOfAHandlerIsSentAndReplayed(t *testing.T) {
	for name, row := range map[string]struct {
		handler gin.HandlerFunc
		want    answer
	}{
		"an answer":                      {func(c *gin.Context) { c.String(http.StatusCreated, "paid") }, answer{201, "paid", ""}},
		"JSON":                           {func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"id": 1}) }, answer{201, `{"id":1}`, ""}},
		"a status alone":                 {func(c *gin.Context) { c.Status(http.StatusNoContent) }, answer{204, "", ""}},
		"the last of two statuses":       {func(c *gin.Context) { c.Status(409); c.Status(402) }, answer{402, "", ""}},
		"an abort":                       {func(c *gin.Context) { c.AbortWithStatusJSON(402, gin.H{"no": "money"}) }, answer{402, `{"no":"money"}`, ""}},
		"an abort with an error":         {func(c *gin.Context) { _ = c.AbortWithError(402, errors.New("no money")) }, answer{402, "", ""}},
		"an error and no answer":         {func(c *gin.Context) { _ = c.Error(errors.New("secret")) }, answer{500, "", ""}},
		"an error and a status":          {func(c *gin.Context) { c.Status(402); _ = c.Error(errors.New("secret")) }, answer{402, "", ""}},
		"an error beside an answer":      {func(c *gin.Context) { c.String(202, "begun"); _ = c.Error(errors.New("late")) }, answer{202, "begun", ""}},
		"neither an answer nor an error": {func(*gin.Context) {}, answer{200, "", ""}},
		"a stream": {func(c *gin.Context) {
			n := 0
			c.Stream(func(w io.Writer) bool { n++; _, _ = io.WriteString(w, "x"); return n < 3 })
		}, answer{200, "xxx", ""}},
		"a status after the body's start": {func(c *gin.Context) { c.String(201, "paid"); c.Status(500) }, answer{201, "paid", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var runs, after atomic.Int64
			e := service(t, func(c *gin.Context) { runs.Add(1); row.handler(c) }, func(*gin.Context) { after.Add(1) })
			expect.Equal(t, "the first request", send(e, "/orders/1", "{}"), row.want)
			before := after.Load()
			again := row.want
			again.Replayed = "true"
			expect.Equal(t, "its repeat", send(e, "/orders/1", "{}"), again)
			expect.Equal(t, "runs of the handler", runs.Load(), 1)
			expect.Equal(t, "runs of the handler after it, by the repeat", after.Load()-before, 0)
		})
	}
}

func TestPanicOfAHandlerLeavesTheOutcomeUnknown(t *testing.T) {
	var runs atomic.Int64
	e := service(t, func(*gin.Context) { runs.Add(1); panic("in the middle of it") })
	expect.Equal(t, "the status of the first request", send(e, "/orders/1", "").Status, 500)
	expect.Equal(t, "the status of its repeat", send(e, "/orders/1", "").Status, 409)
	expect.Equal(t, "runs of the handler", runs.Load(), 1)
}

// The scope of a key is the route, not the path: one key for two orders is a mistake that is told.
func TestKeyBelongsToTheRouteOfGin(t *testing.T) {
	e := service(t, func(c *gin.Context) { c.String(http.StatusCreated, c.Request.Pattern) })
	expect.Equal(t, "the first order", send(e, "/orders/1", ""), answer{201, "POST /orders/:id", ""})
	expect.Equal(t, "the status of another order with its key", send(e, "/orders/2", "").Status, 422)
}

func TestHandlerHasTheMiddlewaresRequestAndMiddlewareBeforeItHasItsOwn(t *testing.T) {
	tokens, _ := newTokens(t)
	e := gin.New()
	status, size, same, ended := 0, 0, false, errors.New("not asked")
	e.Use(func(c *gin.Context) {
		writer, request := c.Writer, c.Request
		c.Next()
		status, size, same, ended = c.Writer.Status(), c.Writer.Size(), c.Writer == writer && c.Request == request, c.Request.Context().Err()
	})
	e.POST("/orders/:id", ginmw.Wrap(tokens.Middleware(idempotency.Route{})), func(c *gin.Context) {
		_, guarded := idempotency.FromContext(c.Request.Context())
		body, _ := io.ReadAll(c.Request.Body)
		c.String(http.StatusTeapot, "guarded %v, order %s: %s", guarded, c.Param("id"), body)
	})
	got := send(e, "/orders/7", "tea")
	expect.Equal(t, "the answer", got, answer{http.StatusTeapot, "guarded true, order 7: tea", ""})
	expect.Equal(t, "the status that middleware before it sees", status, http.StatusTeapot)
	expect.Equal(t, "the size that middleware before it sees", size, len(got.Body))
	expect.Equal(t, "its request and response are those of before", same, true)
	expect.Error(t, "the end of its request's context", ended, nil)
}

// A wrapper without Abort answers by a replay and runs on. The guard's log says so, and a handler
// that reads its body gets an error.
func TestWrapperWithoutAbortIsNoticed(t *testing.T) {
	tokens, log := newTokens(t)
	guard, paid := tokens.Middleware(idempotency.Route{Name: "pay"}), 0
	e := gin.New()
	e.POST("/pay", func(c *gin.Context) {
		guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { c.Request = r; c.Next() })).ServeHTTP(c.Writer, c.Request)
	}, func(c *gin.Context) {
		var order struct{ Amount int }
		if err := c.ShouldBindJSON(&order); err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		paid++
	})
	for range 2 {
		send(e, "/pay", `{"amount": 1}`)
	}
	expect.Equal(t, "payments", paid, 1)
	expect.Equal(t, "how often the log says what is wrong", strings.Count(log.String(), "its guard has answered"), 1)
}

// A limit after the guard may say nothing itself, and neither does a handler that ends with it.
func TestTimeLimitThatAnswersNothingIsNotToldAsDone(t *testing.T) {
	for slow, want := range map[bool][2]int{true: {504, 409}, false: {200, 200}} {
		synctest.Test(t, func(t *testing.T) {
			tokens, _ := newTokens(t)
			limit := func(c *gin.Context) {
				ctx, cancel := context.WithTimeout(c.Request.Context(), time.Second)
				defer cancel()
				c.Request = c.Request.WithContext(ctx)
				c.Next()
			}
			e := gin.New()
			e.POST("/orders/:id", ginmw.Wrap(tokens.Middleware(idempotency.Route{})), limit, func(c *gin.Context) {
				if slow {
					<-c.Request.Context().Done()
				}
			})
			expect.Equal(t, "the first status, and that of its repeat", [2]int{send(e, "/orders/1", "").Status, send(e, "/orders/1", "").Status}, want)
		})
	}
}

// A handler that ends with its time has told nothing. The answer is that of what limits the time,
// and the outcome is unknown.
func TestTimeLimitLeavesTheOutcomeUnknown(t *testing.T) {
	limit := func(c *gin.Context) { // answers as gin-contrib/timeout does, on one goroutine
		ctx, cancel := context.WithTimeout(c.Request.Context(), time.Second)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		if c.Next(); ctx.Err() != nil && !c.Writer.Written() {
			c.AbortWithStatus(http.StatusRequestTimeout)
		}
	}
	for _, failed := range []bool{false, true} {
		for _, around := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				tokens, _ := newTokens(t)
				chain := []gin.HandlerFunc{limit, ginmw.Wrap(tokens.Middleware(idempotency.Route{}))}
				if !around {
					slices.Reverse(chain)
				}
				runs := 0
				pay := func(c *gin.Context) {
					runs++
					<-c.Request.Context().Done()
					if failed {
						_ = c.Error(c.Request.Context().Err())
					}
				}
				e := gin.New()
				e.POST("/orders/:id", append(chain, pay)...)
				expect.Equal(t, "the status of the first request", send(e, "/orders/1", "").Status, 408)
				expect.Equal(t, "the status of its repeat", send(e, "/orders/1", "").Status, 409)
				expect.Equal(t, "runs of the handler", runs, 1)
			})
		}
	}
}
