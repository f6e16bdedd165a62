package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a plan whose settings are known to be right.
func runs(ctx context.Context, t *testing.T, plan Plan) *Result {
	t.Helper()
	result, err := Run(ctx, plan)
	expect.NoError(t, "Run", err)
	return result
}

// near compares durations as the histogram keeps them.
func near(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= float64(want)/500+1
}

// wantNear fails the test if got is not want, as the histogram keeps it, and goes on.
func wantNear(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if !near(got, want) {
		t.Errorf("%s: got %v, want %v within 0.2 %%", what, got, want)
	}
}

// tally is what became of a run's calls.
type tally struct {
	Done, Failed, Unsent int64
	Took                 time.Duration
}

func tallied(r *Result) tally { return tally{r.Done, r.Failed, r.Unsent, r.Took} }

func sleeps(d time.Duration) func(context.Context, int64) error {
	return func(context.Context, int64) error {
		time.Sleep(d)
		return nil
	}
}

func TestClosedLoopKeepsItsCallersBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: sleeps(100 * time.Millisecond), Concurrency: 4, Duration: 10 * time.Second})
		expect.Equal(t, "4 callers of 100 ms each for 10 s", tallied(r), tally{Done: 400, Took: 10 * time.Second})
		expect.Equal(t, "throughput", r.Throughput(), 40)
		wantNear(t, "the longest latency", r.Latency.Max(), 100*time.Millisecond)
		sum := int64(0)
		for _, row := range r.Rows { // the last calls end with the last row, in it or after it
			sum += row.Done
			if row.Took == time.Second && (row.Done < 36 || row.Done > 44 || !near(row.P50, 100*time.Millisecond)) {
				t.Errorf("a row of a second: got %+v, want 36 to 44 done with a median of 100 ms", row)
			}
		}
		expect.Equal(t, "calls done in all rows", sum, 400)
		if len(r.Rows) < 10 {
			t.Errorf("got %d rows of 10 s, want 10 at least", len(r.Rows))
		}
	})
}

// While the operation stands still for a second, an open loop's calls wait, and their waiting is
// measured. A closed loop has one slow sample.
func TestOpenLoopMeasuresWhatWaitsBehindAStall(t *testing.T) {
	stalls := func() func(context.Context, int64) error {
		start := time.Now()
		return func(context.Context, int64) error {
			if since := time.Since(start); since >= 2*time.Second && since < 3*time.Second {
				time.Sleep(3*time.Second - since)
			}
			time.Sleep(time.Millisecond)
			return nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: stalls(), Concurrency: 1, Duration: 10 * time.Second, Rate: 100})
		expect.MustEqual(t, "a rate of 100/s for 10 s", tallied(r), tally{Done: 1000, Took: r.Took})
		if p95 := r.Latency.At(95); p95 < 450*time.Millisecond || p95 > 700*time.Millisecond {
			t.Errorf("p95 of a stall of a second in ten: got %v, want 450 ms to 700 ms, its middle", p95)
		}
		wantNear(t, "median of a stall of a second in ten", r.Latency.At(50), time.Millisecond)
		if longest := r.Latency.Max(); longest < time.Second {
			t.Errorf("the longest latency of a stall of a second: got %v, want 1s at least", longest)
		}
		if r.Delay.Max() < 980*time.Millisecond || r.Delay.At(50) > time.Microsecond {
			t.Errorf("delays of a stall of a second in ten: got %v at most with median %v, want 980 ms at least, and no delay in the middle", r.Delay.Max(), r.Delay.At(50))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: stalls(), Concurrency: 1, Duration: 10 * time.Second})
		wantNear(t, "p99.9 of a closed loop with a stall", r.Latency.At(99.9), time.Millisecond)
		if longest := r.Latency.Max(); longest < time.Second {
			t.Errorf("the longest latency of a closed loop with a stall of a second: got %v, want 1s at least", longest)
		}
	})
}

func TestOpenLoopSendsEachCallAtItsMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var at []time.Duration
		r := runs(t.Context(), t, Plan{Rate: 50, Requests: 20, Concurrency: 8, Call: func(context.Context, int64) error {
			mu.Lock()
			at = append(at, time.Since(start))
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return nil
		}})
		for i, when := range at {
			expect.Equal(t, fmt.Sprintf("when call %d is sent", i), when, time.Duration(i)*20*time.Millisecond)
		}
		expect.Equal(t, "calls sent", len(at), 20)
		expect.Equal(t, "20 requests at a rate of 50/s", tallied(r), tally{Done: 20, Took: 480 * time.Millisecond})
	})
}

func TestARateThatIsTooMuchShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: sleeps(100 * time.Millisecond), Concurrency: 2, Rate: 100, Duration: 10 * time.Second})
		expect.Equal(t, "a rate of 100/s where 20/s are possible, for 10 s", tallied(r), tally{Done: 200, Unsent: 800, Took: r.Took})
		if longest := r.Latency.Max(); longest < 7*time.Second {
			t.Errorf("the longest latency of a rate that is too much: got %v, want 7s at least", longest)
		}
	})
}

func TestFailuresAreCountedAndEndNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, gone := errors.New("busy"), errors.New("gone")
		r := runs(t.Context(), t, Plan{Requests: 100, Concurrency: 3, Code: error.Error, Call: func(_ context.Context, n int64) error {
			switch {
			case n%10 == 0:
				time.Sleep(time.Second)
				return busy
			case n%10 < 3:
				return gone
			}
			time.Sleep(time.Millisecond)
			return nil
		}})
		expect.Equal(t, "100 requests of which 30 fail", tallied(r), tally{Done: 70, Failed: 30, Took: r.Took})
		expect.Equal(t, "failures with code busy", r.Errors["busy"], 10)
		expect.Equal(t, "failures with code gone", r.Errors["gone"], 20)
		expect.Equal(t, "the most frequent code", r.Codes()[0], "gone")
		expect.Error(t, "the first failure with code busy", r.First["busy"], busy)
		wantNear(t, "the longest latency of what succeeds", r.Latency.Max(), time.Millisecond)
		wantNear(t, "the longest latency of what fails", r.Failures.Max(), time.Second)
		expect.Equal(t, "latencies of what fails", r.Failures.N(), 30)
		done, failed := int64(0), int64(0)
		for _, row := range r.Rows {
			done, failed = done+row.Done, failed+row.Failed
		}
		expect.Equal(t, "calls done in all rows", done, 70)
		expect.Equal(t, "calls failed in all rows", failed, 30)
		expect.Equal(t, "calls failed until the last row", r.Rows[len(r.Rows)-1].AllFailed, 30)
	})
}

func TestWarmUpIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		began := time.Now()
		r := runs(t.Context(), t, Plan{WarmUp: 2 * time.Second, Requests: 5, Call: func(context.Context, int64) error {
			calls.Add(1)
			time.Sleep(time.Second)
			return nil
		}})
		expect.Equal(t, "calls, the warm-up included", calls.Load(), 7)
		expect.Equal(t, "5 requests after a warm-up", tallied(r), tally{Done: 5, Took: 5 * time.Second})
		expect.Equal(t, "when it started", r.Started, began.Add(2*time.Second))
	})
}

// An end that was asked for lets calls end that are under way, for a while, and keeps what was
// measured.
func TestAnEndInTheMiddleKeepsWhatWasMeasured(t *testing.T) {
	for _, rate := range []float64{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			var rows []Row
			r := runs(ctx, t, Plan{Call: sleeps(time.Second), Concurrency: 2, Duration: time.Minute, Rate: rate, Progress: func(row Row) { rows = append(rows, row) }})
			asked := fmt.Sprintf("a run at rate %v that ends in the middle", rate)
			expect.Equal(t, asked, tallied(r), tally{Done: 12, Unsent: r.Unsent, Took: r.Took})
			expect.Equal(t, asked+": interrupted", r.Interrupted, true)
			expect.Equal(t, asked+": rows that were told on the way", len(rows), len(r.Rows))
			if len(rows) < 5 {
				t.Errorf("%s: got %d rows, want 5 at least", asked, len(rows))
			}
			if rate > 0 && (r.Unsent < 40 || r.Unsent > 45) {
				t.Errorf("%s: got %d calls of 55 that were never sent, want 40 to 45", asked, r.Unsent)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // one that does not end is cut off
		r := runs(t.Context(), t, Plan{Duration: time.Second, Grace: 3 * time.Second, Code: error.Error, Call: func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		expect.Equal(t, "how long a run takes whose call does not end", r.Took, 4*time.Second)
		expect.Equal(t, "calls that were cut off", r.Errors["context canceled"], 1)
	})
}

func TestPlansThatCanNotBeMeant(t *testing.T) {
	call := sleeps(0)
	for _, plan := range []Plan{
		{}, {Call: call}, {Requests: 1}, {Call: call, Requests: 1, Rate: -1}, {Call: call, Requests: 1, Rate: math.NaN()}, {Call: call, Requests: 1, Rate: math.Inf(1)},
		{Call: call, Requests: 1, Concurrency: -1}, {Call: call, Requests: 1, WarmUp: -1},
	} {
		if r, err := Run(t.Context(), plan); err == nil {
			t.Errorf("plan %+v: got %+v, want an error", plan, r)
		}
	}
}
