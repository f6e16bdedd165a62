package idempotency

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// BenchmarkGuard compares a handler without the middleware, a first request and a replay, on a real
// redis-server, over the handler's own work of nothing. Run it with -cpu 1 for one caller at a
// time, and with the default for 32 at a time for each core.
func BenchmarkGuard(b *testing.B) {
	tokens := newTokens(b, storetest.Open(b, redisstore.Config{URL: redistest.Start(b).URL()}))
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":1}`)
	})
	guarded := tokens.Middleware(Route{Name: "r"})(plain)
	var n atomic.Int64
	for _, row := range []struct {
		name    string
		handler http.Handler
		key     func() string
	}{
		{"unguarded", plain, func() string { return "k" }},
		{"first", guarded, func() string { return "k" + strconv.FormatInt(n.Add(1), 10) }},
		{"replay", guarded, func() string { return "same" }},
	} {
		b.Run(row.name+"/one", func(b *testing.B) {
			for b.Loop() {
				request(b, row.handler, row.key())
			}
		})
		b.Run(row.name+"/many", func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					request(b, row.handler, row.key())
				}
			})
		})
	}
}

func request(b *testing.B, h http.Handler, key string) {
	r := httptest.NewRequest(http.MethodPost, "/pay", strings.NewReader(`{"amount":1299}`))
	r.Header.Set(KeyHeader, key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusCreated {
		b.Fatalf("POST /pay with key %s: got %q, want 201", key, statusAndBody(w))
	}
}
