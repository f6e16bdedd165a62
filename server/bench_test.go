package server_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// sink is a response that is not read.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header            { return s.header }
func (s *sink) WriteHeader(status int)         { s.status = status }
func (s *sink) Write(text []byte) (int, error) { return len(text), nil }

// BenchmarkIncr is what a request for a counter costs without its connection: of the service, and
// of the least that a service on the same counters can be. 64 callers of one key.
func BenchmarkIncr(b *testing.B) {
	store := storetest.Open(b, redisstore.Config{URL: redistest.Start(b).URL()})
	counters := counter.New(store, counter.Config{})
	b.Cleanup(func() { _ = counters.Close() })
	bare := echo.New()
	bare.GET("/incr/:key", func(c echo.Context) error {
		value, err := counters.Incr(c.Request().Context(), c.Param("key"))
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, map[string]any{"key": c.Param("key"), "value": value})
	})
	service := server.New(server.Config{Store: store})
	b.Cleanup(func() { _ = service.Close(b.Context()) })
	asked := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://localhost/incr/orders", http.NoBody)
	for _, side := range []struct {
		name    string
		handler http.Handler
	}{{"bare", bare}, {"service", service.Handler()}} {
		b.Run(side.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(each *testing.PB) {
				for each.Next() {
					to := &sink{header: http.Header{}}
					side.handler.ServeHTTP(to, asked.WithContext(b.Context()))
					if to.status != http.StatusOK {
						b.Errorf("GET /incr/orders: status %d, want 200", to.status)
					}
				}
			})
		})
	}
}
