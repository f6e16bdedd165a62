package segment

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// demand is how many ids are drawn in a minute of the year.
type demand func(minute int) float64

const (
	hour = 60 // minutes
	day  = 24 * hour
	year = 365 * day
)

// live draws ids from one minute to another, all those of some minutes at once; what is less than
// one id is saved for later. It gives how many it has drawn.
func live(t *testing.T, tag *Tag, from, to, atOnce int, demand demand) (drawn int64) {
	t.Helper()
	ids := make([]int64, 0, 1<<20)
	last, saved := int64(-1), 0.0
	for minute := from; minute < to; minute += atOnce {
		time.Sleep(time.Duration(atOnce) * time.Minute)
		saved += demand(minute) * float64(atOnce)
		count := int(saved)
		saved -= float64(count)
		ids = ids[:count]
		expect.NoError(t, "NextN", tag.Fill(t.Context(), ids))
		drawn += int64(count)
		if count > 0 && ids[0] <= last {
			t.Fatalf("%d came after %d", ids[0], last)
		}
		if count > 0 {
			last = ids[count-1]
		}
	}
	return drawn
}

// perDay counts the fetches of each day.
func perDay(source *shelf, start time.Time) map[int]int {
	days := map[int]int{}
	for _, one := range source.all("orders") {
		days[int(one.at.Sub(start)/(24*time.Hour))]++
	}
	return days
}

// Steady load, at any rate whose step lies within the bounds, with any period: as many fetches an
// hour as the period says, within 20 %. The first two days are for the step to come there, from
// wherever the row begins.
func TestFetchesPerHourAreAsConfiguredUnderSteadyLoad(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, row := range []struct {
		name   string
		demand demand
		step   int64
		period time.Duration
	}{
		{"600 a minute", func(int) float64 { return 600 }, 2000, 0},
		{"600 a minute, from a small step", func(int) float64 { return 600 }, 1, 0},
		{"100 a second", func(int) float64 { return 6000 }, 10, 0},
		{"7 a minute", func(int) float64 { return 7 }, 1, 0},
		{"uneven minutes", func(int) float64 { return 200 + 800*random.Float64() }, 50, 0},
		{"an hour's period", func(int) float64 { return 600 }, 2000, time.Hour},
		{"every 20 minutes 9,000 at once", func(minute int) float64 { return 9000 * float64((minute%20)/19) }, 10, time.Hour},
	} {
		bubble(t, func(t *testing.T) {
			source, start := newShelf("orders", 1, row.step), time.Now()
			source.setBefore(after(5 * time.Millisecond))
			s := open(t, source, Config{Period: row.period})
			tag := handle(t, s, "orders")
			live(t, tag, 0, 5*day, 1, row.demand)
			days, want := perDay(source, start), float64(24*time.Hour)/float64(s.config.Period)
			for number := 2; number < 5; number++ {
				if got := days[number]; math.Abs(float64(got)/want-1) > 0.2 {
					t.Errorf("%s: %d fetches on day %d, want %v", row.name, got, number, want)
				}
			}
		})
	}
}

// A year of a shop: day and night, weekends, a sale for two days, two weeks of silence, a rush of
// some minutes now and then.
func TestYearOfDemand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, start := newShelf("orders", 1, 100), time.Now()
		source.setBefore(after(5 * time.Millisecond))
		s := open(t, source, Config{Idle: 30 * 24 * time.Hour})
		tag := handle(t, s, "orders")
		const silence, sale = 200 * day, 320 * day
		demand := func(minute int) float64 {
			rate := 60 * (1.2 + math.Sin(2*math.Pi*float64(minute)/day)) // 12 to 132 a minute
			switch {
			case silence <= minute && minute < silence+14*day:
				return 0
			case sale <= minute && minute < sale+2*day:
				rate *= 8
			case minute/day%7 >= 5:
				rate /= 3
			}
			if minute%(5*day) < 10 {
				rate *= 20
			}
			return rate
		}
		drawn := live(t, tag, 0, silence, 5, demand)
		time.Sleep(time.Second) // for the fetch that may be under way
		before := only(t, s).Fetches
		drawn += live(t, tag, silence, silence+14*day, 5, demand)
		expect.Equal(t, "fetches in the silence", only(t, s).Fetches, before)
		drawn += live(t, tag, silence+14*day, year, 5, demand)
		stats, hours := only(t, s), float64(351*24)
		if perHour := float64(stats.Fetches) / hours; perHour < 3.2 || perHour > 4.8 {
			t.Errorf("%v fetches an hour over the year, want 4", perHour)
		}
		if stats.Starved > 365 {
			t.Errorf("starved %d times", stats.Starved)
		}
		if wasted := source.maxes("orders")[stats.Fetches-1] - 1 - drawn; wasted > 2*stats.Step {
			t.Errorf("%d ids not drawn with a step of %d", wasted, stats.Step)
		}
		for number, fetches := range perDay(source, start) {
			if fetches > 96*2 {
				t.Errorf("day %d: %d fetches", number, fetches)
			}
		}
		steps := source.asked("orders")[1:]
		if most, least := slices.Max(steps), slices.Min(steps); most < 10_000 || most > DefaultMaxStep || least < 100 {
			t.Errorf("steps %d to %d", least, most)
		}
		t.Logf("%.2f fetches an hour, steps %d to %d, starved %d times", float64(stats.Fetches)/hours, slices.Min(steps), slices.Max(steps), stats.Starved)
	})
}
