package loadgen

import (
	"context"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a plan whose settings are known to be right.
func runs(ctx context.Context, t *testing.T, plan Plan) *Result {
	t.Helper()
	result, err := Run(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// near compares durations as the histogram keeps them.
func near(got, want time.Duration) bool {
	return math.Abs(float64(got-want)) <= float64(want)/500+1
}

func sleeps(d time.Duration) func(context.Context, int64) error {
	return func(context.Context, int64) error {
		time.Sleep(d)
		return nil
	}
}

func TestClosedLoopKeepsItsCallersBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: sleeps(100 * time.Millisecond), Concurrency: 4, Duration: 10 * time.Second})
		if r.Done != 400 || r.Failed != 0 || r.Unsent != 0 || r.Took != 10*time.Second || !near(r.Latency.Max(), 100*time.Millisecond) || r.Throughput() != 40 {
			t.Errorf("%d in %v, max %v, %v/s", r.Done, r.Took, r.Latency.Max(), r.Throughput())
		}
		sum := int64(0)
		for _, row := range r.Rows { // the last calls end with the last row, in it or behind it
			sum += row.Done
			if row.Took == time.Second && (row.Done < 36 || row.Done > 44 || !near(row.P50, 100*time.Millisecond)) {
				t.Errorf("%+v", row)
			}
		}
		if sum != 400 || len(r.Rows) < 10 {
			t.Errorf("%d in %d rows", sum, len(r.Rows))
		}
	})
}

// While the operation stands still for a second, an open loop's calls wait, and their waiting is measured. A closed loop has one slow sample.
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
		if r.Done != 1000 || r.Unsent != 0 {
			t.Fatalf("%d done, %d never sent", r.Done, r.Unsent)
		}
		if p95 := r.Latency.At(95); p95 < 450*time.Millisecond || p95 > 700*time.Millisecond {
			t.Errorf("the stall of a second in ten, at its middle: p95 %v", p95)
		}
		if !near(r.Latency.At(50), time.Millisecond) || r.Latency.Max() < time.Second {
			t.Errorf("p50 %v, max %v", r.Latency.At(50), r.Latency.Max())
		}
		if r.Delay.Max() < 980*time.Millisecond || r.Delay.At(50) > time.Microsecond {
			t.Errorf("delays p50 %v, max %v", r.Delay.At(50), r.Delay.Max())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: stalls(), Concurrency: 1, Duration: 10 * time.Second})
		if !near(r.Latency.At(99.9), time.Millisecond) || r.Latency.Max() < time.Second {
			t.Errorf("p99.9 %v, max %v", r.Latency.At(99.9), r.Latency.Max())
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
			if when != time.Duration(i)*20*time.Millisecond {
				t.Errorf("call %d at %v", i, when)
			}
		}
		if len(at) != 20 || r.Done != 20 || r.Took != 480*time.Millisecond || r.Unsent != 0 {
			t.Errorf("%d calls, %d done in %v, %d never sent", len(at), r.Done, r.Took, r.Unsent)
		}
	})
}

func TestARateThatIsTooMuchShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runs(t.Context(), t, Plan{Call: sleeps(100 * time.Millisecond), Concurrency: 2, Rate: 100, Duration: 10 * time.Second})
		if r.Done != 200 || r.Unsent != 800 || r.Latency.Max() < 7*time.Second {
			t.Errorf("%d done, %d never sent, max %v", r.Done, r.Unsent, r.Latency.Max())
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
		if r.Done != 70 || r.Failed != 30 || r.Errors["busy"] != 10 || r.Errors["gone"] != 20 || r.Codes()[0] != "gone" || !errors.Is(r.First["busy"], busy) {
			t.Errorf("%d done, %v", r.Done, r.Errors)
		}
		if !near(r.Latency.Max(), time.Millisecond) || !near(r.Failures.Max(), time.Second) || r.Failures.N() != 30 {
			t.Errorf("%v, and %v of failures", r.Latency.Max(), r.Failures.Max())
		}
		done, failed := int64(0), int64(0)
		for _, row := range r.Rows {
			done, failed = done+row.Done, failed+row.Failed
		}
		if done != 70 || failed != 30 || r.Rows[len(r.Rows)-1].AllFailed != 30 {
			t.Errorf("the rows have %d and %d", done, failed)
		}
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
		if calls.Load() != 7 || r.Done != 5 || r.Took != 5*time.Second || r.Started != began.Add(2*time.Second) {
			t.Errorf("%d calls, %d done in %v", calls.Load(), r.Done, r.Took)
		}
	})
}

// An end that was asked for lets calls end that are under way, for a while, and keeps what was measured.
func TestAnEndInTheMiddleKeepsWhatWasMeasured(t *testing.T) {
	for _, rate := range []float64{0, 10} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			var rows []Row
			r := runs(ctx, t, Plan{Call: sleeps(time.Second), Concurrency: 2, Duration: time.Minute, Rate: rate, Progress: func(row Row) { rows = append(rows, row) }})
			if !r.Interrupted || r.Done != 12 || r.Failed != 0 || len(rows) != len(r.Rows) || len(rows) < 5 {
				t.Errorf("rate %v: %d done, %d failed, interrupted: %v, %d rows", rate, r.Done, r.Failed, r.Interrupted, len(rows))
			}
			if rate > 0 && (r.Unsent < 40 || r.Unsent > 45) {
				t.Errorf("%d never sent of 55", r.Unsent)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // one that does not end is cut off
		r := runs(t.Context(), t, Plan{Duration: time.Second, Grace: 3 * time.Second, Code: error.Error, Call: func(ctx context.Context, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		if r.Took != 4*time.Second || r.Errors["context canceled"] != 1 {
			t.Errorf("%v %v", r.Took, r.Errors)
		}
	})
}

func TestPlansThatCanNotBeMeant(t *testing.T) {
	call := sleeps(0)
	for _, plan := range []Plan{
		{}, {Call: call}, {Requests: 1}, {Call: call, Requests: 1, Rate: -1}, {Call: call, Requests: 1, Rate: math.NaN()}, {Call: call, Requests: 1, Rate: math.Inf(1)},
		{Call: call, Requests: 1, Concurrency: -1}, {Call: call, Requests: 1, WarmUp: -1},
	} {
		if r, err := Run(t.Context(), plan); err == nil {
			t.Errorf("%+v: %+v", plan, r)
		}
	}
}

// measured is a short run with some of everything.
func measured(t *testing.T) (result *Result) {
	synctest.Test(t, func(t *testing.T) {
		result = runs(t.Context(), t, Plan{Concurrency: 4, Duration: 3 * time.Second, Call: func(_ context.Context, n int64) error {
			time.Sleep(time.Duration(n%100+1) * time.Millisecond)
			if n%50 == 7 {
				return errors.New("no")
			}
			return nil
		}})
	})
	return result
}

func TestCSVHasEachRow(t *testing.T) {
	r := measured(t)
	var text strings.Builder
	if err := r.WriteCSV(&text); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(strings.NewReader(text.String())).ReadAll()
	if err != nil || len(lines) != len(r.Rows)+1 {
		t.Fatalf("%d lines of %d rows, %v", len(lines), len(r.Rows), err)
	}
	requests := int64(0)
	for _, line := range lines[1:] {
		for i, cell := range line {
			if _, err := strconv.ParseFloat(cell, 64); err != nil {
				t.Errorf("%s: %v", lines[0][i], err)
			}
		}
		n, _ := strconv.ParseInt(line[1], 10, 64)
		requests += n
	}
	if requests != r.Done {
		t.Errorf("%d requests of %d", requests, r.Done)
	}
}

func TestPlotsArePictures(t *testing.T) {
	some := measured(t)
	var one *Result // in which nothing differs from anything
	synctest.Test(t, func(t *testing.T) { one = runs(t.Context(), t, Plan{Requests: 1, Call: sleeps(0)}) })
	for _, r := range []*Result{some, one} {
		var svg, picture strings.Builder
		if err := r.Plot("a.svg", "incr", &svg); err != nil {
			t.Fatal(err)
		}
		decoder, elements, text := xml.NewDecoder(strings.NewReader(svg.String())), 0, ""
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				elements++
			case xml.CharData:
				text += string(token)
			}
		}
		if elements < 20 || !strings.Contains(text, "incr") || !strings.Contains(text, "90%") || !strings.Contains(text, "seconds") {
			t.Errorf("%d elements: %s", elements, text)
		}
		if r == one {
			continue
		}
		if err := r.Plot("a.PNG", "incr", &picture); err != nil {
			t.Fatal(err)
		}
		if image, err := png.Decode(strings.NewReader(picture.String())); err != nil || image.Bounds().Dx() < 500 {
			t.Errorf("%v", err)
		}
	}
	if err := some.Plot("a.gif", "", io.Discard); !errors.Is(err, ErrPlotName) {
		t.Error(err)
	}
	var none *Result
	synctest.Test(t, func(t *testing.T) {
		none = runs(t.Context(), t, Plan{Requests: 1, Call: func(context.Context, int64) error { return io.EOF }})
	})
	if err := none.Plot("a.svg", "", io.Discard); err == nil {
		t.Error("a plot of nothing")
	}
}
