package limit_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/redisstore"
)

// window is the least that people write by hand: a count with a TTL.
var window = redis.NewScript(`local n = redis.call('INCR', KEYS[1])
if n == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return n`)

// BenchmarkTake compares Take with a plain script through go-redis, on one redis-server: of one
// caller, and of 64 for one name and for a name each.
func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	limits := open(b, storetest.Open(b, redisstore.Config{URL: server.URL()}))
	bare := server.Client()
	rate := limit.Rate{N: limit.MaxN, Per: time.Second}
	for _, way := range []struct {
		name string
		take func(name string) error
	}{
		{"window", func(name string) error { return window.Run(b.Context(), bare, []string{"w" + name}, 1000).Err() }},
		{"take", func(name string) error { _, err := limits.Take(b.Context(), name, rate, 1); return err }},
	} {
		b.Run(way.name+"/one", func(b *testing.B) {
			for b.Loop() {
				if err := way.take("one"); err != nil {
					b.Fatalf("take one: got error %v, want none", err)
				}
			}
		})
		for names, only := range map[string]bool{"one-name": true, "names": false} {
			b.Run(way.name+"/64/"+names, func(b *testing.B) {
				b.SetParallelism(64)
				var callers atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					name := "k"
					if !only {
						name = strconv.FormatInt(callers.Add(1), 10)
					}
					for pb.Next() {
						if err := way.take(name); err != nil {
							b.Errorf("take: got error %v, want none", err)
						}
					}
				})
			})
		}
	}
}
