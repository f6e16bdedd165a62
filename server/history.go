package server

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/textid"
	"github.com/coatcheck/coatcheck/metrics"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

// historySeries are the series of the last hour on the console: names, and the totals of each.
var historySeries = []struct {
	name string
	of   totalOf
}{
	{"counters", func(totals metrics.Totals, _ map[string]int64) int64 { return totals.Values }},
	{"snowflakes", func(totals metrics.Totals, _ map[string]int64) int64 { return totals.IDs["snowflake"] }},
	{"segments", func(totals metrics.Totals, _ map[string]int64) int64 { return totals.IDs["segment"] }},
	{"uuids", func(totals metrics.Totals, _ map[string]int64) int64 {
		return totals.IDs["uuid"] + totals.IDs[textid.ULID] + totals.IDs[textid.TypeID]
	}},
	{"issued", tallied(events.TokenIssued)},
	{"claimed", tallied(events.OperationClaimed)},
	{"replayed", tallied(events.OperationReplayed)},
	{"completed", tallied(events.OperationCompleted)},
	{"released", tallied(events.OperationReleased)},
	{"locks", func(totals metrics.Totals, _ map[string]int64) int64 { return totals.Locks }},
	{"allowed", func(totals metrics.Totals, _ map[string]int64) int64 { return totals.Allowed }},
	{"limited", func(totals metrics.Totals, _ map[string]int64) int64 {
		return totals.Problems[string(api.LimitReached)]
	}},
	{"refused", problemsOf(4)},
	{"failed", problemsOf(5)},
	{"operations_in_doubt", tallied(events.OperationInDoubt)},
	{"in_doubt", tallied(events.OperationInDoubt, events.CounterInDoubt, events.PoolQuarantined, events.LockQuarantined)},
}

type totalOf = func(metrics.Totals, map[string]int64) int64

func tallied(kinds ...string) totalOf {
	return func(_ metrics.Totals, tally map[string]int64) (sum int64) {
		for _, kind := range kinds {
			sum += tally[kind]
		}
		return sum
	}
}

// problemsOf sums the problems whose status is of a class, such as 4 of 404, but for limits that
// are reached: to refuse is what they are for.
func problemsOf(class int) totalOf {
	codes := slices.DeleteFunc(api.Codes(), func(code api.Code) bool {
		return api.NewProblem(code, "").Status/100 != class || code == api.LimitReached
	})
	return func(totals metrics.Totals, _ map[string]int64) (sum int64) {
		for _, code := range codes {
			sum += totals.Problems[string(code)]
		}
		return sum
	}
}

// history keeps for an hour how much the process has handed out.
type history struct {
	hour  *events.Hour
	ended sync.WaitGroup // of what counts, until the server's life ends
}

func newHistory(s *Server) *history {
	var names []string
	for _, series := range historySeries {
		names = append(names, series.name)
	}
	h := &history{hour: events.NewHour(time.Now(), names...)}
	if s.config.Console.Mode == ConsoleOff {
		return h
	}
	h.ended.Go(func() {
		tick := time.NewTicker(events.Step)
		defer tick.Stop()
		for {
			select {
			case <-s.life.Done():
				return
			case now := <-tick.C:
				h.hour.Add(now, totalsOf(s))
			}
		}
	})
	return h
}

func totalsOf(s *Server) (list []int64) {
	totals, tally := s.metrics.Totals(), s.events.Tally()
	for _, series := range historySeries {
		list = append(list, series.of(totals, tally))
	}
	return list
}

// showHistory answers with what the process has handed out in the last hour.
func (s *Server) showHistory(r *request) error {
	n := r.int("n", int64(events.Points), 1, int64(events.Points))
	if r.err != nil {
		return r.err
	}
	s.history.hour.Add(time.Now(), totalsOf(s))
	noStore(r)
	told := s.history.hour.Last(int(n))
	if operations, since, known := s.metrics.InDoubt(); known {
		told.InDoubt = &api.InDoubt{Operations: operations, Since: api.At(since)}
	}
	return r.JSON(http.StatusOK, told)
}
