package embedded

import (
	"fmt"
	"testing"
	"time"
)

// How long a script takes through go-redis, alone and with many callers.
func BenchmarkIncrScript(b *testing.B) {
	script := `return redis.call('INCR', KEYS[1])`
	c := client(b, open(b, Config{}))
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			if err := c.Eval(b.Context(), script, []string{"n"}).Err(); err != nil {
				b.Fatalf("Eval: got error %v, want none", err)
			}
		}
	})
	b.Run("32 callers", func(b *testing.B) {
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := c.Eval(b.Context(), script, []string{"n"}).Err(); err != nil {
					b.Errorf("Eval: got error %v, want none", err)
				}
			}
		})
	})
}

// keys that it replaces.
func BenchmarkClock(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		s := open(b, Config{})
		c := client(b, s)
		for i := range keys {
			s.redis.Set(fmt.Sprint("key:", i), "v")
			s.redis.SetTTL(fmt.Sprint("key:", i), time.Hour+time.Duration(i))
			s.clock.set(fmt.Sprint("key:", i), time.Hour+time.Duration(i))
		}
		b.Run(fmt.Sprintf("%d keys/SET PX", keys), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if err := c.Set(b.Context(), fmt.Sprint("key:", i%keys), "v", time.Hour).Err(); err != nil {
					b.Fatalf("Set v: got error %v, want none", err)
				}
			}
		})
		b.Run(fmt.Sprintf("%d keys/sweep", keys), func(b *testing.B) {
			for b.Loop() {
				s.expireLocked()
				s.clock.arm()
			}
		})
		b.Run(fmt.Sprintf("%d keys/FastForward", keys), func(b *testing.B) {
			for b.Loop() {
				s.redis.FastForward(0)
			}
		})
	}
}

// How long it takes to let go of a key that expired.
func BenchmarkExpire(b *testing.B) {
	s := open(b, Config{})
	for i := range b.N {
		s.redis.Set(fmt.Sprint("key:", i), "v")
		s.clock.set(fmt.Sprint("key:", i), time.Duration(1+i))
	}
	time.Sleep(time.Millisecond)
	b.ResetTimer()
	s.exec.Lock()
	defer s.exec.Unlock()
	s.expireLocked()
}
