package limit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/limit"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString("left: " + err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// hourly is six in an hour, four at once: ten minutes each.
var hourly = limit.Rate{N: 6, Per: time.Hour, Burst: 4}

func open(t testing.TB, store *redisstore.Store) *limit.Limits {
	t.Helper()
	limits := limit.New(store, limit.Config{})
	t.Cleanup(func() {
		if err := limits.Close(); err != nil {
			t.Errorf("Close: got error %v, want none", err)
		}
	})
	return limits
}

// takes takes a cost that there is room for.
func takes(t testing.TB, l *limit.Limits, rate limit.Rate, cost, remaining int) limit.State {
	t.Helper()
	state, err := l.Take(t.Context(), "k", rate, cost)
	if err != nil {
		t.Fatalf("Take of %d: got error %v, want none", cost, err)
	}
	expect.Equal(t, fmt.Sprintf("remaining, after %d was taken", cost), state.Remaining, remaining)
	return state
}

// refused asks for a cost that there is no room for.
func refused(t testing.TB, l *limit.Limits, rate limit.Rate, cost int) *limit.ReachedError {
	t.Helper()
	_, err := l.Take(t.Context(), "k", rate, cost)
	reached, is := errors.AsType[*limit.ReachedError](err)
	if !is || !errors.Is(err, limit.ErrReached) || !errors.Is(err, redisstore.ErrRefused) {
		t.Fatalf("Take of %d: got error %v, want %v", cost, err, limit.ErrReached)
	}
	expect.Equal(t, "the wait, as redisstore reads it", redisstore.RetryAfter(err), reached.Wait)
	return reached
}

func TestALimitIsOneForAllProcesses(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		one, two := open(t, store), open(t, store)
		takes(t, one, hourly, 1, 3)
		takes(t, two, hourly, 2, 1)
		reached := refused(t, one, hourly, 2)
		expect.Equal(t, "remaining, where 2 do not fit", reached.Remaining, 1)
		takes(t, one, hourly, 1, 0)
		refused(t, two, hourly, 1)
		takes(t, two, hourly, 0, 0)
		takes(t, two, hourly, -3, 3)
		expect.NoError(t, "Reset", one.Reset(t.Context(), "k"))
		takes(t, two, hourly, 0, 4)
		if err := one.Reset(t.Context(), "unused"); err != nil {
			t.Errorf("Reset of what is not in use: got error %v, want none", err)
		}
	})
}

// The clock is the store's, so in a bubble every wait is exact.
func TestALimitRefillsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := open(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
		state := takes(t, l, hourly, 4, 0)
		expect.Equal(t, "the reset, after all was taken", state.Reset, hourly.Whole())
		reached := refused(t, l, hourly, 3)
		expect.Equal(t, "the wait for 3", reached.Wait, 30*time.Minute)
		time.Sleep(reached.Wait - time.Millisecond)
		reached = refused(t, l, hourly, 3)
		expect.Equal(t, "the wait for 3, a moment before", reached.Wait, time.Millisecond)
		time.Sleep(reached.Wait)
		takes(t, l, hourly, 3, 0)
		time.Sleep(24 * time.Hour)
		takes(t, l, hourly, 1, 3)
	})
}

// A caller that asks again whenever it is told to gets what the rate gives, to the last one.
func TestACallerThatWaitsAsToldGetsTheWholeRate(t *testing.T) {
	for _, rate := range []limit.Rate{{N: 7, Per: time.Second, Burst: 1}, {N: 3, Per: time.Second, Burst: 3}, {N: 1000, Per: 3 * time.Second, Burst: 1}, {N: 100, Per: time.Minute}} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := open(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
				const spans = 3
				began, n := time.Now(), 0
				for time.Since(began) < spans*rate.Per {
					_, err := l.Take(t.Context(), "k", rate, 1)
					if err == nil {
						n++
					} else if !errors.Is(err, limit.ErrReached) {
						t.Fatalf("Take: got error %v, want none or %v", err, limit.ErrReached)
					}
					time.Sleep(redisstore.RetryAfter(err))
				}
				most := rate.Size() + spans*rate.N
				if n > most || n < most-1 {
					t.Errorf("taken in three spans: got %d, want %d or one less", n, most)
				}
			})
		})
	}
}

// However many ask at once, a limit lets its burst through and no more, and what each is told
// remains differs.
func TestConcurrentCallsShareABurst(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		one, two := open(t, store), open(t, store)
		rate := limit.Rate{N: 1, Per: 24 * time.Hour, Burst: 300}
		var granted, reached atomic.Int64
		var seen sync.Map
		var asking sync.WaitGroup
		for i := range 1000 {
			asking.Go(func() {
				state, err := []*limit.Limits{one, two}[i%2].Take(t.Context(), "k", rate, 1)
				if errors.Is(err, limit.ErrReached) {
					reached.Add(1)
					return
				}
				if _, twice := seen.LoadOrStore(state.Remaining, true); err != nil || twice {
					t.Errorf("Take: got %v, %v, want what no other call was told", state, err)
				}
				granted.Add(1)
			})
		}
		asking.Wait()
		expect.Equal(t, "granted", granted.Load(), 300)
		expect.Equal(t, "refused", reached.Load(), 700)
	})
}

// Small calls fit where a larger one that came before them does not.
func TestConcurrentCallsOfDifferentCosts(t *testing.T) {
	l := open(t, storetest.Open(t, redisstore.Config{}))
	rate := limit.Rate{N: 1, Per: 24 * time.Hour, Burst: 1000}
	var taken atomic.Int64
	var asking sync.WaitGroup
	for i := range 600 {
		asking.Go(func() {
			cost := i%3 + 1
			if _, err := l.Take(t.Context(), "k", rate, cost); err == nil {
				taken.Add(int64(cost))
			}
		})
	}
	asking.Wait()
	expect.Equal(t, "taken of 1000, by calls of 1, 2 and 3", taken.Load(), 1000)
}

// Callers that state different rates for one name are each judged by their own: what the one has
// taken at once is free for the other after longer than a TTL can be.
func TestCallersOfDifferentRatesGetAnAnswer(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		l := open(t, store)
		fast, slow := limit.Rate{N: limit.MaxN, Per: time.Hour}, limit.Rate{N: 1, Per: limit.MaxPer}
		takes(t, l, fast, limit.MaxN, 0)
		reached := refused(t, l, slow, 1)
		if reached.Wait < limit.MaxReset || reached.Reset < reached.Wait {
			t.Errorf("the wait and the reset of the slower one: got %v and %v, want more than %v", reached.Wait, reached.Reset, limit.MaxReset)
		}
		takes(t, l, slow, -1, 0)
		takes(t, l, fast, -limit.MaxN, limit.MaxN)
	})
}

func TestWhatIsNoLimitIsRefused(t *testing.T) {
	l := open(t, storetest.Open(t, redisstore.Config{URL: "embedded:"}))
	minute := limit.Rate{N: 1, Per: time.Minute}
	for name, row := range map[string]struct {
		name string
		rate limit.Rate
		cost int
	}{
		"no name": {"", minute, 1}, "a name with a brace": {"a{b}", minute, 1}, "a long name": {strings.Repeat("a", 201), minute, 1},
		"no rate": {"k", limit.Rate{Per: time.Minute}, 0}, "a rate of a negative number": {"k", limit.Rate{N: -1, Per: time.Minute}, 0},
		"a rate beyond the bound": {"k", limit.Rate{N: limit.MaxN + 1, Per: time.Minute}, 1}, "no span": {"k", limit.Rate{N: 1}, 1},
		"a span below the bound": {"k", limit.Rate{N: 1, Per: time.Millisecond - 1}, 1}, "a span beyond the bound": {"k", limit.Rate{N: 1, Per: limit.MaxPer + 1}, 1},
		"a negative burst": {"k", limit.Rate{N: 1, Per: time.Minute, Burst: -1}, 0}, "a burst beyond the bound": {"k", limit.Rate{N: 1, Per: time.Minute, Burst: limit.MaxN + 1}, 1},
		"a burst that is free again in a thousand years": {"k", limit.Rate{N: 1, Per: limit.MaxPer, Burst: 1000}, 1}, "a cost beyond the burst": {"k", minute, 2},
		"a cost below the bound": {"k", minute, -limit.MaxN - 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Take(t.Context(), row.name, row.rate, row.cost)
			if !errors.Is(err, limit.ErrInvalid) || !errors.Is(err, redisstore.ErrRefused) {
				t.Errorf("Take: got error %v, want %v", err, limit.ErrInvalid)
			}
		})
	}
	for rate, most := range map[limit.Rate]string{
		{N: 1, Per: limit.MaxPer, Burst: 1000}: "1 to 10,", {N: 1, Per: limit.MaxPer, Burst: limit.MaxN}: "1 to 10,", {N: 2, Per: 24 * time.Hour, Burst: 7321}: "1 to 7320,",
	} {
		expect.Contains(t, fmt.Sprintf("what is wrong with %+v", rate), rate.Check().Error(), most, "within ten years")
		rate.Burst = rate.MaxBurst()
		expect.NoError(t, fmt.Sprintf("Check of %+v", rate), rate.Check())
	}
	if err := l.Reset(t.Context(), "a/b"); !errors.Is(err, limit.ErrInvalid) {
		t.Errorf("Reset of a/b: got error %v, want %v", err, limit.ErrInvalid)
	}
}

func TestALimitOfAClosedStoreIsUnavailable(t *testing.T) {
	redis := redistest.Start(t)
	l := open(t, storetest.Open(t, redisstore.Config{URL: redis.URL()}))
	takes(t, l, hourly, 1, 3)
	redis.Kill()
	if _, err := l.Take(t.Context(), "k", hourly, 1); !errors.Is(err, redisstore.ErrUnavailable) && !errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("Take while Redis is away: got error %v, want %v or %v", err, redisstore.ErrUnavailable, redisstore.ErrUnknownOutcome)
	}
}

// A caller that gives up while another's call is under way does not hold up the others, and each
// gets an answer.
func TestCallersThatGiveUpLeaveTheOthersTheirAnswers(t *testing.T) {
	l := open(t, storetest.Open(t, redisstore.Config{}))
	rate := limit.Rate{N: 1, Per: 24 * time.Hour, Burst: 1000}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var answered atomic.Int64
	var asking sync.WaitGroup
	for i := range 200 {
		asking.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = gone
			}
			_, err := l.Take(ctx, "k", rate, 1)
			switch {
			case err == nil:
				answered.Add(1)
			case i%2 == 1:
				t.Errorf("Take: got error %v, want none", err)
			case !errors.Is(err, context.Canceled):
				t.Errorf("Take of a caller that has gone: got error %v, want %v", err, context.Canceled)
			}
		})
	}
	asking.Wait()
	if answered.Load() < 100 {
		t.Errorf("callers that got an answer: got %d, want 100 at least", answered.Load())
	}
}
