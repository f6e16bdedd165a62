package access_test

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func limiter(t testing.TB, store *redisstore.Store) *access.Limiter {
	f := access.NewLimiter(store, slog.New(slog.DiscardHandler))
	t.Cleanup(f.Close)
	return f
}

// slow gives one request an hour, so that no test is long enough for another.
func slow(burst int) access.Limit {
	return access.Limit{Rate: access.Rate{N: 1, Per: time.Hour}, Burst: burst}
}

func TestFlowIsSharedByAllServersOnAStore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		one, two := limiter(t, store), limiter(t, store)
		start := time.Now()
		for i := range 20 {
			state, err := []*access.Limiter{one, two}[i%2].Take(t.Context(), "orders", slow(9))
			asked := fmt.Sprintf("request %d of 20", i+1)
			if i < 10 {
				expect.Error(t, asked, err, nil)
				expect.Equal(t, asked+": what is left", state.Left, 9-i)
				expect.Equal(t, asked+": the size", state.Size, 10)
				continue
			}
			expect.Error(t, asked, err, access.ErrTooOften)
			expect.Equal(t, asked+": what is left", state.Left, 0)
			often, ok := errors.AsType[*access.TooOftenError](err)
			if soonest := time.Hour - time.Since(start) - time.Second; !ok || often.Wait < soonest || often.Wait > time.Hour {
				t.Errorf("%s: got %+v, want to be sent away for %v to an hour", asked, often, soonest)
			}
		}
		if _, err := two.Take(t.Context(), "bills", slow(9)); err != nil {
			t.Errorf("another principal: %v", err)
		}
	})
}

// However requests come together, at however many servers: no more are let through than the limit
// has, and those.
func TestCrowdGetsWhatTheLimitHasAndNoMore(t *testing.T) {
	for _, servers := range []int{1, 4} {
		t.Run(fmt.Sprint(servers, " servers"), func(t *testing.T) {
			server := redistest.Start(t)
			var all []*access.Limiter
			for range servers {
				all = append(all, limiter(t, storetest.Open(t, redisstore.Config{URL: server.URL()})))
			}
			var callers sync.WaitGroup
			var through atomic.Int64
			for i := range 400 {
				callers.Go(func() {
					_, err := all[i%servers].Take(t.Context(), "orders", slow(99))
					switch {
					case err == nil:
						through.Add(1)
					case !errors.Is(err, access.ErrTooOften):
						t.Errorf("Take of orders: got error %v, want none or that it is too often", err)
					}
				})
			}
			callers.Wait()
			expect.Equal(t, "400 requests at once: let through", through.Load(), 100)
		})
	}
}

// One server that speaks for a principal alone pays one round trip a request, and none for those
// that it refuses.
func TestRequestCostsOneRoundTrip(t *testing.T) {
	server := redistest.Start(t)
	one := limiter(t, storetest.Open(t, redisstore.Config{URL: server.URL()}))
	take := func(n int) {
		for range n {
			_, _ = one.Take(t.Context(), "orders", slow(49)) // refused or not
		}
	}
	take(1)
	for _, row := range []struct{ requests, want int }{{49, 49}, {100, 0}} {
		before := scriptsRun(t, server)
		take(row.requests)
		if n := scriptsRun(t, server) - before; n != row.want {
			t.Errorf("%d scripts for %d requests, want %d", n, row.requests, row.want)
		}
	}
}

func scriptsRun(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	info, err := server.Client().InfoMap(t.Context(), "commandstats").Result()
	expect.NoError(t, "InfoMap commandstats", err)
	for _, command := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
		var calls int
		_, _ = fmt.Sscanf(info["Commandstats"][command], "calls=%d,", &calls) // there may be none
		n += calls
	}
	return n
}

// A principal that has used all of its rate is let in again as soon as the rate gives, although the
// store's clock was set back meanwhile.
func TestPrincipalIsLetInAgainAfterTheStoresClockWasSetBack(t *testing.T) {
	server := redistest.Start(t)
	quick := access.Limit{Rate: access.Rate{N: 50, Per: time.Second}, Burst: 4}
	first := limiter(t, storetest.Open(t, redisstore.Config{URL: server.URL()}))
	if _, err := first.Take(t.Context(), "orders", quick); err != nil {
		t.Fatalf("Take of orders: got error %v, want none", err)
	}
	redis := server.Client()
	key := redis.Keys(t.Context(), "*limit-callers*").Val()[0]
	// as a server has it whose clock was ten minutes ahead
	used := fmt.Sprintf("%d 5", time.Now().Add(10*time.Minute).UnixMicro())
	expect.NoError(t, "SET "+key, redis.Set(t.Context(), key, used, 0).Err())
	next := limiter(t, storetest.Open(t, redisstore.Config{URL: server.URL()}))
	expect.Eventually(t, "a request is let in", func() bool {
		_, err := next.Take(t.Context(), "orders", quick)
		return err == nil
	})
}

// While the store is away each server counts by itself; after that all of them together again.
func TestServerCountsByItselfWhileTheStoreIsAway(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	open := func() *access.Limiter {
		return limiter(t, storetest.Open(t, redisstore.Config{URL: server.URL(), Timeout: 20 * time.Second}))
	}
	one, two := open(), open()
	through := func(f *access.Limiter, n int) (got int) {
		for range n {
			_, err := f.Take(t.Context(), "orders", slow(9))
			if err == nil {
				got++
			} else if !errors.Is(err, access.ErrTooOften) {
				t.Errorf("Take of orders: got error %v, want none or that it is too often", err)
			}
		}
		return got
	}
	expect.Equal(t, "4 requests while the store is there: let through", through(one, 4), 4)
	server.Kill()
	expect.Equal(t, "20 requests while it is away, at the server that has counted: let through", through(one, 20), 6)
	expect.Equal(t, "20 requests while it is away, at the server that knows nothing: let through", through(two, 20), 10)
	server.Restart()
	third := open()
	expect.Eventually(t, "the store counts again", func() bool { return through(third, 1) == 1 })
	if got := through(third, 20); got > 6 {
		t.Errorf("the store has forgotten what it counted: %d more", got)
	}
}

func TestFlowGoesOnWithTime(t *testing.T) {
	one := limiter(t, storetest.Open(t, redisstore.Config{}))
	limit := access.Limit{Rate: access.Rate{N: 1000, Per: time.Second}, Burst: 1}
	got := 0
	expect.Eventually(t, "fifty requests are let through, at a thousand a second", func() bool {
		if _, err := one.Take(t.Context(), "orders", limit); err == nil {
			got++
		}
		return got == 50
	})
}

func TestRates(t *testing.T) {
	for text, want := range map[string]time.Duration{"100/s": time.Second, "1/m": time.Minute, "1000000/h": time.Hour} {
		rate, err := access.ParseRate(text)
		expect.Error(t, "the rate "+text, err, nil)
		expect.Equal(t, "the time of "+text, rate.Per, want)
		expect.Equal(t, "how it is written", rate.String(), text)
	}
	for _, text := range []string{"", "0/s", "-1/s", "1", "1/d", "1/ s", "1.5/s", "01/s", "1000001/s", "9999999/s"} {
		if rate, err := access.ParseRate(text); err == nil {
			t.Errorf("%q is %v", text, rate)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	server := redistest.Start(b)
	limit := access.Limit{Rate: access.Rate{N: 1_000_000, Per: time.Second}, Burst: 1_000_000}
	store := storetest.Open(b, redisstore.Config{URL: server.URL()})
	b.Run("ping", func(b *testing.B) {
		for b.Loop() {
			if err := store.Ping(b.Context()); err != nil {
				b.Fatalf("Ping: got error %v, want none", err)
			}
		}
	})
	b.Run("alone", func(b *testing.B) {
		f := limiter(b, store)
		for b.Loop() {
			if _, err := f.Take(b.Context(), "orders", limit); err != nil {
				b.Fatalf("Take orders: got error %v, want none", err)
			}
		}
	})
	b.Run("crowd", func(b *testing.B) {
		f := limiter(b, store)
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := f.Take(b.Context(), "orders", limit); err != nil {
					b.Errorf("Take orders: got error %v, want none", err)
				}
			}
		})
	})
}
