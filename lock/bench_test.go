package lock

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// peer is one way to do what is measured once, for the caller of that number.
type peer struct {
	name string
	once func(ctx context.Context, caller int) error
}

// peers are two bare round trips, redislock, and a fenced lock without contention. Each caller has
// a name of its own.
func peers(b *testing.B, server *redistest.Server) []peer {
	b.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 64})
	b.Cleanup(func() { _ = client.Close() })
	plain := redislock.New(client)
	locks := open(b, storetest.Open(b, redisstore.Config{URL: server.URL() + "?pool_size=64"}), Config{})
	names := make([]string, 1024)
	for i := range names {
		names[i] = fmt.Sprint("bench-", i)
	}
	return []peer{
		{"pings", func(ctx context.Context, _ int) error {
			if err := client.Ping(ctx).Err(); err != nil {
				return err
			}
			return client.Ping(ctx).Err()
		}},
		{"redislock", func(ctx context.Context, caller int) error {
			held, err := plain.Obtain(ctx, names[caller], DefaultTTL, nil)
			if err != nil {
				return err
			}
			return held.Release(ctx)
		}},
		{"coatcheck", func(ctx context.Context, caller int) error {
			held, err := locks.TryAcquire(ctx, names[caller], Request{})
			if err != nil {
				return err
			}
			return held.Release(ctx)
		}},
	}
}

// rounds are interleaved, so that other load on the machine affects all alike.
const rounds = 15

// BenchmarkUncontended measures acquiring and releasing a lock without contention, beside redislock
// without a fence and two bare round trips, as ratios of medians over interleaved rounds.
func BenchmarkUncontended(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			all := peers(b, redistest.Start(b))
			took := make([][]time.Duration, len(all))
			for b.Loop() {
				for range rounds {
					for i, peer := range all {
						took[i] = append(took[i], round(b, peer, callers))
					}
				}
			}
			middle := make([]float64, len(all))
			for i := range all {
				slices.Sort(took[i])
				middle[i] = float64(took[i][len(took[i])/2])
				b.ReportMetric(middle[i]/1000, all[i].name+"-us/pair")
			}
			b.ReportMetric(middle[2]/middle[0], "x-pings")
			b.ReportMetric(middle[1]/middle[0], "redislock-x-pings")
			b.ReportMetric(middle[1]/middle[2], "pairs-x-redislock")
		})
	}
}

// round is what one of a few hundred pairs takes on average, of all callers together.
func round(b *testing.B, peer peer, callers int) time.Duration {
	b.Helper()
	const pairs = 512
	var all sync.WaitGroup
	start := time.Now()
	for caller := range callers {
		all.Go(func() {
			for range pairs / callers * min(callers, 8) {
				if err := peer.once(b.Context(), caller); err != nil {
					b.Errorf("one lock and release: got error %v, want none", err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(start) / time.Duration(pairs*min(callers, 8))
}

// BenchmarkContendedInProcess measures how often a lock changes owners among goroutines of one
// process that do nothing else: past the gate, and where each has a token and asks at once.
func BenchmarkContendedInProcess(b *testing.B) {
	const callers = 16
	server := redistest.Start(b)
	for _, row := range []struct {
		name  string
		token func() string
	}{{"past the gate", func() string { return "" }}, {"at once", secret.New}} {
		b.Run(row.name, func(b *testing.B) {
			locks := open(b, storetest.Open(b, redisstore.Config{URL: server.URL()}), Config{})
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			for range callers {
				all.Go(func() {
					for left.Add(-1) >= 0 {
						held, err := locks.Acquire(b.Context(), "contended", Request{Token: row.token()})
						if err == nil {
							err = held.Release(b.Context())
						}
						if err != nil {
							b.Errorf("one lock and release: got error %v, want none", err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// BenchmarkPair is one pair after the other, for a profile, with the server time that it takes.
func BenchmarkPair(b *testing.B) {
	server := redistest.Start(b)
	for _, peer := range peers(b, server) {
		b.Run(peer.name, func(b *testing.B) {
			client := server.Client()
			if err := client.ConfigResetStat(b.Context()).Err(); err != nil {
				b.Fatalf("ConfigResetStat: got error %v, want none", err)
			}
			for b.Loop() {
				if err := peer.once(b.Context(), 0); err != nil {
					b.Fatalf("once: got error %v, want none", err)
				}
			}
			spent := 0.0
			for _, found := range serverTime.FindAllStringSubmatch(client.Info(b.Context(), "commandstats").Val(), -1) {
				usec, _ := strconv.ParseFloat(found[1], 64)
				spent += usec
			}
			b.ReportMetric(spent/float64(b.N), "server-us/op")
		})
	}
}

var serverTime = regexp.MustCompile(`cmdstat_(?:ping|evalsha):calls=\d+,usec=(\d+)`)
