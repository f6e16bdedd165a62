package counter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// patience is how long a test waits for what must come; only a hang takes that long.
const patience = 30 * time.Second

const margin = 1000

// process is counters with a store of their own, as another process has them. Its hold-off is
// short.
func process(t testing.TB, url string, change ...func(*redisstore.Config, *counter.Config)) counters {
	t.Helper()
	stored := redisstore.Config{URL: url, Timeout: 20 * time.Second}
	config := counter.Config{Margin: margin, HoldOff: 3 * time.Second}
	for _, f := range change {
		f(&stored, &config)
	}
	store := storetest.Open(t, stored)
	c := counters{counter.New(store, config), store}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// unhurried leaves an idle process ten seconds to say what it has seen, on a machine that is busy.
func unhurried(_ *redisstore.Config, c *counter.Config) { c.HoldOff = 10 * time.Second }

func strict(_ *redisstore.Config, c *counter.Config) { c.AfterLoss = counter.AfterLossRefuse }

func acknowledged(replicas int) func(*redisstore.Config, *counter.Config) {
	return func(c *redisstore.Config, _ *counter.Config) { c.Ack, c.AckTimeout = replicas, time.Second }
}

// next is the value that a process gets when it is served again.
func (c counters) next(t testing.TB, key string) int64 {
	t.Helper()
	var value int64
	expect.Eventually(t, "it is served", func() bool {
		var err error
		value, err = c.Incr(t.Context(), key)
		return err == nil
	})
	return value
}

// gets fails the test unless a process gets that value at once.
func (c counters) gets(t testing.TB, key string, want int64) {
	t.Helper()
	if got, err := c.Incr(t.Context(), key); err != nil || got != want {
		t.Errorf("%s: got %d, %v, want %d", key, got, err, want)
	}
}

// do runs a command on a server itself.
func do(t testing.TB, server *redistest.Server, words ...any) {
	t.Helper()
	expect.NoError(t, fmt.Sprintf("command %v", words), server.Client().Do(t.Context(), words...).Err())
}

// handedOut is what many callers were given.
type handedOut struct {
	mu     sync.Mutex
	ranges []counter.Range
	failed []error
}

func (h *handedOut) add(r counter.Range, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed = append(h.failed, err)
		return
	}
	h.ranges = append(h.ranges, r)
}

func (h *handedOut) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ranges)
}

// once fails the test if a value was handed out twice or a failure is of no class. It returns the
// largest value.
func (h *handedOut) once(t testing.TB) (largest int64) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.ranges, func(a, b counter.Range) int { return int(a.First - b.First) })
	twice := 0
	for _, r := range h.ranges {
		if r.First <= largest {
			if twice++; twice <= 3 {
				t.Errorf("%+v, after %d was handed out", r, largest)
			}
		}
		largest = max(largest, r.Last)
	}
	if twice > 0 {
		t.Errorf("%d of %d calls got values that were handed out before", twice, len(h.ranges))
	}
	for _, err := range h.failed {
		if errors.Is(err, redisstore.ErrRefused) == errors.Is(err, redisstore.ErrUnknownOutcome) {
			t.Errorf("%v is of no class, or of two", err)
		}
	}
	return largest
}

// load is callers in several processes that add to the key k until they are stopped.
type load struct {
	handedOut

	t    testing.TB
	stop context.CancelFunc
	done sync.WaitGroup
}

func startLoad(t testing.TB, processes ...counters) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, stop: cancel}
	for i, c := range processes {
		for j := range 4 {
			l.done.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					r, err := c.IncrBy(t.Context(), "k", int64((i+j+n)%3+1))
					l.add(r, err)
					rest := 5 * time.Millisecond // what is tested here is not the rate
					if errors.Is(err, counter.ErrHoldOff) {
						rest = 25 * time.Millisecond // there is none for seconds
					}
					time.Sleep(rest)
				}
			})
		}
	}
	t.Cleanup(l.end)
	l.goesOn()
	return l
}

func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// goesOn waits until a good many calls more have succeeded.
func (l *load) goesOn() {
	l.t.Helper()
	before := l.count()
	expect.Eventually(l.t, "calls succeed, by themselves", func() bool { return l.count() > before+200 })
}
