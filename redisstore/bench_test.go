package redisstore_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// BenchmarkRun compares a script through a store with the same script by a bare go-redis client,
// one caller and many at once, in one run.
func BenchmarkRun(b *testing.B) {
	server := redistest.Start(b)
	store := open(b, server.URL(), nil)
	bare := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64, MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	b.Cleanup(func() { _ = bare.Close() })
	expect.NoError(b, "SCRIPTLOAD", bare.ScriptLoad(b.Context(), bump.Source).Err())
	key := store.Key("test", "x")
	calls := map[string]func() error{
		"store": func() error { _, err := bumped(b.Context(), store, "x"); return err },
		"bare":  func() error { return bare.EvalSha(b.Context(), bump.SHA, []string{key}).Err() },
	}
	for _, callers := range []int{1, 64, 256} {
		for name, call := range calls {
			b.Run(fmt.Sprintf("%d/%s", callers, name), func(b *testing.B) {
				if callers == 1 {
					for b.Loop() {
						expect.NoError(b, "call", call())
					}
					return
				}
				b.SetParallelism(callers / 2)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						expect.Error(b, "call", call(), nil)
					}
				})
			})
		}
	}
}
