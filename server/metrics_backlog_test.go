package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// The store goes away while a handler runs. What cannot be recorded or given back waits, and is
// given up when the service ends before the store is back: both are on /metrics.
func TestMetricsCountWhatWaitsForTheStoreAndWhatIsGivenUp(t *testing.T) {
	t.Parallel()
	for kind, notBegun := range map[string]bool{"answer": false, "claim": true} {
		t.Run(kind, func(t *testing.T) {
			store := storetest.Open(t, redisstore.Config{})
			s := server.New(server.Config{Store: store})
			route := idempotency.Route{Name: "POST /away", Lease: time.Hour}
			s.HandleGuarded("POST", "/away", route, func(w http.ResponseWriter, r *http.Request) error {
				attempt, _ := idempotency.FromContext(r.Context())
				if notBegun {
					attempt.Release()
				}
				expect.Error(t, "closing the store", store.Close(), nil)
				w.WriteHeader(http.StatusCreated)
				return nil
			})
			ask := func(method, path string) *httptest.ResponseRecorder {
				r := httptest.NewRequest(method, path, http.NoBody)
				r.Host = "localhost"
				r.Header.Set("Idempotency-Key", "k")
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, r)
				return w
			}
			figures := func() map[string]float64 { return readFigures(t, ask("GET", "/metrics").Body.String()) }
			of := func(name string) string { return "token_backlog_" + name + `{kind="` + kind + `"}` }

			expect.Equal(t, "POST /away", ask("POST", "/away").Code, 201)
			before := figures()
			expect.Equal(t, of("operations"), before[of("operations")], 1)
			expect.Equal(t, of("dropped_total")+" before the end", before[of("dropped_total")], 0)
			if before[of("bytes")] <= 0 {
				t.Errorf("%s: got %v, want more than 0", of("bytes"), before[of("bytes")])
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			expect.Error(t, "Close while the store is away", s.Close(ended), context.Canceled)
			after := figures()
			expect.Equal(t, of("dropped_total")+" after the end", after[of("dropped_total")], 1)
			expect.Equal(t, of("operations")+" after the end", after[of("operations")], 0)
		})
	}
}
