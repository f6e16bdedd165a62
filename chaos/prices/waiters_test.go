//go:build nightly

package prices

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
)

// crowd is what a process with many waiters cost the others when it was killed or stopped.
type crowd struct {
	Row     string `json:"row"`
	Waiters int    `json:"waiters"`

	Before int   `json:"grants_before"`       // of other locks, a second
	First  int   `json:"grants_first_second"` // after the end
	Later  int   `json:"grants_later"`        // in the worst second after that
	Served int64 `json:"served_ms"`           // until the live waiter after them had the lock

	// The 99th percentile of a counter's next value, in microseconds.
	CounterBefore int64 `json:"counter_before_us"`
	CounterAfter  int64 `json:"counter_after_us"`
}

// crowds are the ways in which the waiters of one process share locks, and in which it ends. A
// process that was stopped keeps its connections, so that Redis takes it for one that listens.
var crowds = []struct {
	name  string
	locks func(waiters int) int
	end   func(*chaostest.Process)
}{
	{"on one lock, killed", func(int) int { return 1 }, (*chaostest.Process).Kill},
	{"on one lock, stopped", func(int) int { return 1 }, (*chaostest.Process).Stop},
	{"on a lock each, killed", func(waiters int) int { return waiters }, (*chaostest.Process).Kill},
	{"on a lock each, stopped", func(waiters int) int { return waiters }, (*chaostest.Process).Stop},
}

const (
	crowdOthers = 8 // callers that lock and release names of their own
	crowdTTL    = time.Hour
)

// The environment of a process that waits.
const (
	crowdURL   = "COATCHECK_CHAOS_PRICES_URL"
	crowdSize  = "COATCHECK_CHAOS_PRICES_WAITERS"
	crowdLocks = "COATCHECK_CHAOS_PRICES_LOCKS"
)

// play is the other process: all of it waits for locks until it is killed.
func play(string) error {
	waiters, _ := strconv.Atoi(os.Getenv(crowdSize))
	locks, _ := strconv.Atoi(os.Getenv(crowdLocks))
	// thousands ask at once, on a machine that does other things as well: none is to give up
	store, err := redisstore.OpenConfig(context.Background(), redisstore.Config{URL: os.Getenv(crowdURL), Timeout: time.Minute})
	if err != nil {
		return err
	}
	waiting := lock.New(store, lock.Config{})
	failed := make(chan error)
	for n := range waiters {
		go func() {
			// a token each, as callers over HTTP have: without one a process has a single place in
			// the line
			request := lock.Request{TTL: crowdTTL, Owner: fmt.Sprint(n), Token: secret.New()}
			_, err := waiting.Acquire(context.Background(), awaited(n%locks), request)
			failed <- fmt.Errorf("waiter %d waits no more: %w", n, err)
		}()
	}
	return <-failed
}

func awaited(n int) string { return fmt.Sprint("awaited-", n) }

func TestPricesOfDeadWaiters(t *testing.T) {
	wanted, waiters, span := chaostest.Wanted(t), 500, 3
	if *all {
		waiters, span = 5000, 15 // seconds for which that many dead waiters once blocked Redis
	}
	var figures figures
	for _, row := range crowds {
		if !wanted(row.name) {
			continue
		}
		t.Run(row.name, func(t *testing.T) {
			var got crowd
			// without a grant the machine had no time for the others
			for tries := 0; got.Before == 0; tries++ {
				if tries == 3 {
					t.Fatal("the others were granted nothing before the end of the process")
				}
				got = measureCrowd(t, waiters, row.locks(waiters), span, row.end)
			}
			got.Row = row.name
			note(t, &figures, &figures.Crowds, got)
		})
	}
	figures.publish(t, "dead waiters", figures.crowdTable)
}

// measureCrowd ends a process whose waiters share that many locks, gives those locks back from the
// same moment on, one after the other, and looks at what others are granted meanwhile.
func measureCrowd(t *testing.T, waiters, names, span int, strike func(*chaostest.Process)) crowd {
	server := redistest.Start(t)
	// as the process that waits has it: none is to give up on a busy machine
	store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: server.URL(), Timeout: time.Minute})
	if err != nil {
		t.Fatalf("opening the store: %v", err)
	}
	defer store.Close()
	locks := lock.New(store, lock.Config{})
	defer locks.Close()
	held := make([]lock.Grant, names)
	for n := range held {
		if held[n], err = locks.Grant(t.Context(), awaited(n), lock.Request{TTL: crowdTTL}); err != nil {
			t.Fatalf("granting lock %d: %v", n, err)
		}
	}
	other := chaostest.StartRole(t, "waiters", crowdURL+"="+server.URL(),
		crowdSize+"="+fmt.Sprint(waiters), crowdLocks+"="+fmt.Sprint(names))
	for n := range held {
		queued(t, locks, awaited(n), waiters/names)
	}
	served := make(chan error, 1)
	go func() {
		last, err := locks.Acquire(t.Context(), awaited(names-1), lock.Request{TTL: crowdTTL})
		if err == nil {
			err = last.Release(t.Context())
		}
		served <- err
	}()
	queued(t, locks, awaited(names-1), waiters/names+1)

	all := beginOthers(t, store)
	time.Sleep(time.Duration(span) * time.Second / 3)
	strike(other)
	end := time.Now()
	for _, grant := range held {
		if err := locks.Release(t.Context(), grant); err != nil {
			t.Errorf("giving a lock back: %v", err)
		}
	}
	if err := <-served; err != nil {
		t.Errorf("the live waiter: %v", err)
	}
	took := time.Since(end)
	time.Sleep(time.Duration(span)*time.Second - time.Since(end))
	figure := all.stop(end, span)
	figure.Waiters, figure.Served = waiters, took.Milliseconds()
	return figure
}

// queued waits until that many wait for a lock.
func queued(t *testing.T, locks *lock.Locks, name string, want int) {
	t.Helper()
	chaostest.Await(t, 5*time.Minute, func() string {
		info, err := locks.Get(t.Context(), name)
		if err != nil || info.Queue != want {
			return fmt.Sprintf("%d wait for %s, want %d; %v", info.Queue, name, want, err)
		}
		return ""
	})
}

// others are callers that have nothing to do with the waiters. They lock and count.
type others struct {
	cancel context.CancelFunc
	group  sync.WaitGroup

	mu     sync.Mutex
	grants []time.Time
	counts []counted
	err    error
}

type counted struct {
	at   time.Time
	took time.Duration
}

func beginOthers(t *testing.T, store *redisstore.Store) *others {
	ctx, cancel := context.WithCancel(t.Context())
	o := &others{cancel: cancel}
	locks, counters := lock.New(store, lock.Config{}), counter.New(store, counter.Config{})
	for range crowdOthers {
		o.group.Go(func() {
			o.repeat(ctx, func() error {
				held, err := locks.Acquire(ctx, fmt.Sprint("other-", rand.IntN(64)), lock.Request{TTL: time.Minute})
				if err != nil {
					return err
				}
				o.note(func() { o.grants = append(o.grants, time.Now()) })
				return held.Release(context.WithoutCancel(ctx))
			})
		})
	}
	o.group.Go(func() {
		o.repeat(ctx, func() error {
			begin := time.Now()
			_, err := counters.Incr(ctx, "counted")
			o.note(func() { o.counts = append(o.counts, counted{begin, time.Since(begin)}) })
			return err
		})
	})
	t.Cleanup(func() {
		cancel()
		o.group.Wait()
		if err := errors.Join(o.err, locks.Close(), counters.Close()); err != nil {
			t.Errorf("the others: %v", err)
		}
	})
	return o
}

// repeat asks until the context ends. What a busy machine leaves without an answer counts as none.
func (o *others) repeat(ctx context.Context, ask func() error) {
	for ctx.Err() == nil {
		if err := ask(); err != nil && !errors.Is(err, redisstore.ErrUnknownOutcome) && ctx.Err() == nil {
			o.note(func() { o.err = err })
			return
		}
	}
}

func (o *others) note(write func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	write()
}

// stop ends the others, and says what they were given in a third of span before a moment, and in
// span after it.
func (o *others) stop(end time.Time, span int) (got crowd) {
	o.cancel()
	o.group.Wait()
	seconds := map[int]int{}
	for _, at := range o.grants {
		seconds[int(math.Floor(at.Sub(end).Seconds()))]++
	}
	for n := 1; n <= span/3; n++ {
		got.Before += seconds[-n] / (span / 3)
	}
	got.First, got.Later = seconds[0], seconds[1]
	for n := 2; n < span; n++ {
		got.Later = min(got.Later, seconds[n])
	}
	var before, after []time.Duration
	for _, c := range o.counts {
		if c.at.Before(end) {
			before = append(before, c.took)
		} else {
			after = append(after, c.took)
		}
	}
	got.CounterBefore, got.CounterAfter = percentile99(before), percentile99(after)
	return got
}

func percentile99(spans []time.Duration) int64 {
	if len(spans) == 0 {
		return 0
	}
	slices.Sort(spans)
	return spans[len(spans)*99/100].Microseconds()
}

// crowdTable is the table in Markdown.
func (f *figures) crowdTable(*figures) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| waiters of one process | locks of others a second, before | in the first second | in the worst later second | p99 of a counter, before → after | the live waiter after them waits |\n|---|---|---|---|---|---|\n")
	for _, c := range f.Crowds {
		fmt.Fprintf(&b, "| %s %s | %s | %.2f × | %.2f × | %.1f → %.1f ms | %s s |\n", thousands(int64(c.Waiters)), c.Row, thousands(int64(c.Before)),
			ratio(c.First, c.Before), ratio(c.Later, c.Before), float64(c.CounterBefore)/1000, float64(c.CounterAfter)/1000, seconds(c.Served))
	}
	return b.String()
}

func ratio(now, before int) float64 { return float64(now) / float64(max(1, before)) }
