package counter

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// BenchmarkIncr compares our script with a bare INCR through go-redis, on one redis-server.
func BenchmarkIncr(b *testing.B) {
	server := redistest.Start(b)
	counters := New(storetest.Open(b, redisstore.Config{URL: server.URL()}), Config{})
	b.Cleanup(func() { _ = counters.Close() })
	bare := server.Client()
	incr := func() error { _, err := counters.Incr(b.Context(), "k"); return err }
	plain := func() error { return bare.Incr(b.Context(), "plain").Err() }
	for _, row := range []struct {
		name string
		do   func() error
	}{{"bare", plain}, {"script", incr}} {
		b.Run(row.name+"/one", func(b *testing.B) {
			for b.Loop() {
				if err := row.do(); err != nil {
					b.Fatalf("do: got error %v, want none", err)
				}
			}
		})
		b.Run(row.name+"/many", func(b *testing.B) {
			b.SetParallelism(32)
			before := reads(b, bare)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := row.do(); err != nil {
						b.Errorf("do: got error %v, want none", err)
					}
				}
			})
			b.ReportMetric(float64(reads(b, bare)-before)/float64(b.N), "reads/op")
		})
	}
}

// reads is how often the server has read from its connections: calls that share a round trip share
// a read.
func reads(b *testing.B, client *redis.Client) (n int64) {
	b.Helper()
	text, err := client.Info(b.Context(), "stats").Result()
	if err != nil {
		b.Fatalf("Info stats: got error %v, want none", err)
	}
	_, text, _ = strings.Cut(text, "total_reads_processed:")
	text, _, _ = strings.Cut(text, "\r\n")
	if n, err = strconv.ParseInt(text, 10, 64); err != nil {
		b.Fatalf("strconv.ParseInt: got error %v, want none", err)
	}
	return n
}
