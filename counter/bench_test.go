package counter

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// BenchmarkIncr compares our script with a bare INCR through go-redis, on one redis-server.
func BenchmarkIncr(b *testing.B) {
	redis := redistest.Start(b)
	counters := New(storetest.Open(b, redisstore.Config{URL: redis.URL()}), Config{})
	bare := redis.Client()
	incr := func() error { _, err := counters.Incr(b.Context(), "k"); return err }
	plain := func() error { return bare.Incr(b.Context(), "plain").Err() }
	for _, row := range []struct {
		name string
		do   func() error
	}{{"bare", plain}, {"script", incr}} {
		b.Run(row.name+"/one", func(b *testing.B) {
			for b.Loop() {
				if err := row.do(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(row.name+"/many", func(b *testing.B) {
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := row.do(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
