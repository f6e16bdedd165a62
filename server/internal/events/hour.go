package events

import (
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// Step is the time of one point of an [Hour]; Points is how many it keeps.
const (
	Step   = 5 * time.Second
	Points = int(time.Hour / Step)
)

// Hour is how much happened in each step of the last hour, for a fixed list of series. Its memory
// is taken at once and does not grow. It is safe for concurrent use.
type Hour struct {
	series []string

	mu     sync.Mutex
	first  int64            // step that has begun with New, by its number since 1970
	newest int64            // step of the last Add
	last   []int64          // totals then
	counts [Points][]uint64 // by step
}

// NewHour returns an empty Hour, whose first step is the one of now.
func NewHour(now time.Time, series ...string) *Hour {
	h := &Hour{series: series, first: stepOf(now), last: make([]int64, len(series))}
	h.newest = h.first - 1
	cells := make([]uint64, Points*len(series))
	for i := range h.counts {
		h.counts[i], cells = cells[:len(series)], cells[len(series):]
	}
	return h
}

func stepOf(t time.Time) int64 { return t.UnixMilli() / Step.Milliseconds() }

// Add records the totals of all series, in their order, since the process began. The increase
// belongs to the current step; steps between the last call and this one are empty.
func (h *Hour) Add(now time.Time, totals []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	step := max(stepOf(now), h.newest) // the clock may have been set back
	for empty := max(h.newest+1, step-int64(Points)+1); empty <= step; empty++ {
		clear(h.counts[empty%int64(Points)])
	}
	h.newest = step
	for i, total := range totals {
		if more := total - h.last[i]; more > 0 { // else it was read before what is known
			h.counts[step%int64(Points)][i] += uint64(more)
			h.last[i] = total
		}
	}
}

// Last returns the last n points at most.
func (h *Hour) Last(n int) api.History {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = int(min(int64(n), int64(Points), h.newest-h.first+1))
	told := api.History{Until: api.At(time.UnixMilli((h.newest + 1) * Step.Milliseconds()).UTC()), StepMs: Step.Milliseconds(),
		Series: map[string][]uint64{}}
	for i, name := range h.series {
		points := make([]uint64, n)
		for at := range points {
			points[at] = h.counts[(h.newest-int64(n-1-at))%int64(Points)][i]
		}
		told.Series[name] = points
	}
	return told
}
