package loadgen

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// The histograms take a nanosecond to ten minutes, with three digits: an error of a thousandth.
const (
	shortest  = 1
	longest   = int64(10 * time.Minute)
	digits    = 3
	maxShards = 8
)

func newHistogram() *hdr.Histogram { return hdr.New(shortest, longest, digits) }

// Result is what a run came to.
type Result struct {
	Started     time.Time
	Took        time.Duration
	Rate        float64 // that was meant; 0 = a closed loop
	Interrupted bool    // the context ended first

	Done   int64            // calls that succeeded
	Failed int64            // and those that did not
	Unsent int64            // of an open loop: calls that were meant within the run and never begun
	Errors map[string]int64 // the failed ones by their codes
	First  map[string]error // of each code one of the first

	// of what succeeded: from when it was begun, or with a rate from when it was meant
	Latency  Latencies
	Failures Latencies // of what failed
	Delay    Latencies // of an open loop: how much later than meant calls were begun

	Rows []Row
}

// Throughput is how many calls a second succeeded.
func (r *Result) Throughput() float64 { return perSecond(r.Done, r.Took) }

func perSecond(n int64, took time.Duration) float64 {
	if took <= 0 {
		return 0
	}
	return float64(n) / took.Seconds()
}

// Latencies are a distribution.
type Latencies struct{ from *hdr.Histogram }

// N is how many there are.
func (l Latencies) N() int64 { return l.from.TotalCount() }

// At is the latency that a share of all, 0 to 100 percent, did not exceed; 0 if there are none.
func (l Latencies) At(percent float64) time.Duration {
	if l.N() == 0 {
		return 0
	}
	return time.Duration(l.from.ValueAtQuantile(percent))
}

// Max is the largest.
func (l Latencies) Max() time.Duration { return time.Duration(l.from.Max()) }

// Mean is the arithmetic mean.
func (l Latencies) Mean() time.Duration { return time.Duration(l.from.Mean()) }

// Row is what was recorded in one part of a run.
type Row struct {
	End          time.Duration // since the start
	Took         time.Duration
	Done, Failed int64
	P50, P99     time.Duration // of what succeeded
	AllFailed    int64         // from the start on
}

// Rate is how many calls a second succeeded.
func (r Row) Rate() float64 { return perSecond(r.Done, r.Took) }

// recorder keeps what callers record, in shards, so that they do not wait for each other.
type recorder struct {
	shards []*shard
	window *hdr.Histogram // of the row that is being taken
	total  *hdr.Histogram
	last   time.Duration
	failed int64
}

// shard is what some callers have recorded since the last row; failures and delays since the start.
type shard struct {
	mu       sync.Mutex
	window   *hdr.Histogram
	failed   int64
	failures *hdr.Histogram
	delays   *hdr.Histogram
	errors   map[string]int64
	first    map[string]error
}

func newRecorder(shards int) *recorder {
	r := &recorder{window: newHistogram(), total: newHistogram()}
	for range shards {
		r.shards = append(r.shards, &shard{window: newHistogram(), failures: newHistogram(), delays: newHistogram(),
			errors: map[string]int64{}, first: map[string]error{}})
	}
	return r
}

// record takes a call; code is a word for err, if it failed. The histogram's end takes all beyond.
func (s *shard) record(took, delay time.Duration, err error, code string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(s.delays, delay)
	if err == nil {
		put(s.window, took)
		return
	}
	if s.failed++; s.errors[code] == 0 {
		s.first[code] = err
	}
	s.errors[code]++
	put(s.failures, took)
}

func put(into *hdr.Histogram, d time.Duration) {
	// within its bounds it takes every value
	_ = into.RecordValue(min(max(int64(d), shortest), longest))
}

// row takes what was recorded since the last one.
func (r *recorder) row(end time.Duration) Row {
	r.window.Reset()
	row := Row{End: end, Took: end - r.last}
	for _, s := range r.shards {
		s.mu.Lock()
		if s.window.TotalCount() > 0 {
			r.window.Merge(s.window)
			s.window.Reset()
		}
		row.Failed += s.failed
		s.failed = 0
		s.mu.Unlock()
	}
	r.total.Merge(r.window)
	r.last = end
	r.failed += row.Failed
	found := Latencies{r.window}
	row.Done, row.AllFailed = found.N(), r.failed
	row.P50, row.P99 = found.At(50), found.At(99)
	return row
}

// into adds up all, after the last row.
func (r *recorder) into(result *Result) {
	failures, delays := newHistogram(), newHistogram()
	result.Errors, result.First = map[string]int64{}, map[string]error{}
	for _, s := range r.shards {
		s.mu.Lock()
		failures.Merge(s.failures)
		delays.Merge(s.delays)
		for code, n := range s.errors {
			result.Errors[code] += n
			result.First[code] = s.first[code]
		}
		s.mu.Unlock()
	}
	result.Latency, result.Failures, result.Delay = Latencies{r.total}, Latencies{failures}, Latencies{delays}
	result.Done, result.Failed = r.total.TotalCount(), failures.TotalCount()
}

// Codes are the codes of what failed, the most frequent first.
func (r *Result) Codes() []string {
	codes := slices.Sorted(maps.Keys(r.Errors))
	slices.SortStableFunc(codes, func(a, b string) int { return int(r.Errors[b] - r.Errors[a]) })
	return codes
}

// Short writes a latency for people, with three digits or so.
func Short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2fms", float64(d)/1e6)
	case d >= time.Microsecond:
		return fmt.Sprintf("%.1fµs", float64(d)/1e3)
	}
	return d.String()
}
