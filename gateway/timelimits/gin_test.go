package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	gintimeout "github.com/gin-contrib/timeout"
	"github.com/gin-gonic/gin"

	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/idempotency/ginmw"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Within the guard the time limit answers first, and the handler has its effect after that. Its own
// answer is dropped, and nothing runs again.
func TestTimeLimitOfGinWithinTheGuardLeavesTheOutcomeUnknown(t *testing.T) {
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "Open", err)
	tokens := idempotency.New(store, idempotency.Config{})
	t.Cleanup(func() {
		expect.NoError(t, "Close", tokens.Close(context.Background()))
		expect.NoError(t, "closing the store", store.Close())
	})
	late, runs := make(chan struct{}), 0
	limit := gintimeout.New(gintimeout.WithTimeout(time.Millisecond), gintimeout.WithResponse(func(c *gin.Context) {
		c.String(http.StatusRequestTimeout, "late")
		close(late)
	}))
	gin.SetMode(gin.ReleaseMode)
	app := gin.New()
	app.POST("/payments", ginmw.Wrap(tokens.Middleware(idempotency.Route{Lease: time.Hour})), limit, func(c *gin.Context) {
		<-late
		runs++
		c.String(http.StatusCreated, "paid")
	})
	for _, want := range []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusConflict} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader("{}"))
		request.Header.Set("Idempotency-Key", "k")
		got := httptest.NewRecorder()
		app.ServeHTTP(got, request)
		expect.Equal(t, "the status", got.Code, want)
		expect.Equal(t, "its outcome is unknown", strings.Contains(got.Body.String(), "outcome-unknown"), want == http.StatusConflict)
	}
	expect.Equal(t, "runs of the handler", runs, 1)
}
