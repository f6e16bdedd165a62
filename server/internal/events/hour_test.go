package events_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server/internal/events"
)

func TestAnHourSaysHowMuchHappenedInEachStep(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000).UTC()
	at := func(steps float64) time.Time { return began.Add(time.Duration(steps * float64(events.Step))) }
	h := events.NewHour(began, "a", "b")
	expect.Equal(t, "an hour of which nothing was seen", h.Last(events.Points), api.History{
		Until: api.At(began), StepMs: 5000, Series: map[string][]uint64{"a": {}, "b": {}},
	})
	h.Add(at(0.9), []int64{3, 0})
	h.Add(at(1.9), []int64{10, 1})
	h.Add(at(4.9), []int64{11, 1}) // two steps were not looked at
	want := api.History{Until: api.At(at(5)), StepMs: 5000, Series: map[string][]uint64{"a": {3, 7, 0, 0, 1}, "b": {0, 1, 0, 0, 0}}}
	expect.Equal(t, "the points", h.Last(events.Points), want)
	h.Add(at(3), []int64{13, 1}) // the clock was set back
	want.Series["a"][4] = 3
	expect.Equal(t, "the points after the clock was set back", h.Last(events.Points), want)
	h.Add(at(3), []int64{12, 1}) // read before what is known
	h.Add(at(3), []int64{13, 1})
	expect.Equal(t, "the points after totals that came late", h.Last(events.Points), want)
	expect.Equal(t, "the last two", h.Last(2).Series, map[string][]uint64{"a": {0, 3}, "b": {0, 0}})
}

func TestAnHourForgetsWhatIsOlder(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000)
	h := events.NewHour(began, "a")
	for i := range events.Points + 10 {
		h.Add(began.Add(time.Duration(i)*events.Step), []int64{int64(i*i + 1)})
	}
	points := h.Last(10_000).Series["a"]
	expect.Equal(t, "the number of points", len(points), events.Points)
	expect.Equal(t, "the oldest", points[0], uint64(10*10-9*9))
	expect.Equal(t, "the newest", points[events.Points-1], uint64(729*729-728*728))
	h.Add(began.Add(5*time.Hour), []int64{729*729 + 6})
	points = h.Last(events.Points).Series["a"]
	expect.Equal(t, "the oldest after four hours that were not looked at", points[0], uint64(0))
	expect.Equal(t, "the newest after them", points[events.Points-1], uint64(5))
}
