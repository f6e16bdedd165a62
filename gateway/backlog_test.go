package gateway

import (
	"context"
	"net/http"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The store goes away while the upstream works. Its answer is sent and waits to be recorded, and is
// given up when the gateway ends before the store is back: both are on /metrics.
func TestMetricsCountAnAnswerThatWaitsAndIsGivenUp(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{URL: "embedded:"})
	upstream := newShop(t, func(w http.ResponseWriter, _ *http.Request) {
		expect.Error(t, "closing the store", store.Close(), nil)
		w.WriteHeader(http.StatusCreated)
	})
	r := start(t, upstream.URL, payments, on(store))
	metrics := func() string { return r.admin("/metrics", "localhost", "127.0.0.1:1").Body.String() }
	r.wantPaid(r.pay("a"), "", false)
	expect.Contains(t, "GET /metrics while the answer waits", metrics(),
		`coatcheck_token_backlog_operations{kind="answer"} 1`, `coatcheck_token_backlog_operations{kind="claim"} 0`, `coatcheck_token_backlog_dropped_total{kind="answer"} 0`)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expect.Error(t, "Close while the store is away", r.g.Close(ended), context.Canceled)
	expect.Contains(t, "GET /metrics after the end", metrics(),
		`coatcheck_token_backlog_operations{kind="answer"} 0`, `coatcheck_token_backlog_dropped_total{kind="answer"} 1`, `coatcheck_token_backlog_dropped_total{kind="claim"} 0`)
}
