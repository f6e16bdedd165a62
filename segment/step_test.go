package segment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// What Leaf's own table shows while a tag is drained as fast as it goes.
func TestTagDrainedFastMovesTheRowAsLeafDoes(t *testing.T) {
	for _, row := range []struct {
		start, step, maxStep int64
		maxes                []int64
	}{
		{1, 2000, 0, []int64{2001, 4001, 8001, 16001, 32001}},
		{0, 1, 0, []int64{1, 2, 4, 8, 16, 32, 64, 128}},
		// 160 would be more than 100, so 80 it stays
		{1, 10, 100, []int64{11, 21, 41, 81, 161, 241, 321}},
		{1, 100, 100, []int64{101, 201, 301, 401}},  // a step at the most
		{1, 300, 100, []int64{301, 601, 901, 1201}}, // a least step above the most
		{5, 33, 66, []int64{38, 71, 137, 203, 269}}, // twice is just the most
		{5, 33, 65, []int64{38, 71, 104, 137, 170}}, // and just more than that
		{math.MaxInt64 - 25, 10, 0, []int64{math.MaxInt64 - 15, math.MaxInt64 - 5, math.MaxInt64}},
	} {
		bubble(t, func(t *testing.T) {
			source := newShelf("orders", row.start, row.step)
			s := open(t, source, Config{MaxStep: row.maxStep})
			tag := handle(t, s, "orders")
			// when its first id is drawn the last Take of the row is over
			end := row.maxes[len(row.maxes)-2]
			ids := slow(t, tag, int(end-row.start))
			wantRun(t, ids, row.start)
			if got := source.maxes("orders"); !slices.Equal(got[:min(len(got), len(row.maxes))], row.maxes) {
				t.Errorf("from %d by %d: max was %d, want %d", row.start, row.step, got, row.maxes)
			}
			for _, took := range source.all("orders") {
				if r := took.given; r.Lo != r.Hi-(r.Hi-r.Lo) || r.Delta != 0 {
					t.Errorf("got %+v, want a range of ids at the distance of one", r)
				}
			}
		})
	}
}

// As in Leaf, the next range is asked for when a tenth is used: by the draw after that.
func TestNextRangeIsFetchedWhenATenthIsUsed(t *testing.T) {
	for _, row := range []struct {
		step, before int64
		ahead        float64
	}{
		{2000, 200, 0}, {2000, 1000, 0.5}, {10, 1, 0}, {9, 0, 0}, {1, 0, 0}, {2, 0, 0}, {1000, 900, 0.9}, {19, 1, 0}, {1, 0, 0.9},
	} {
		bubble(t, func(t *testing.T) {
			source := newShelf("orders", 1, row.step)
			s := open(t, source, Config{Ahead: row.ahead})
			tag := handle(t, s, "orders")
			slow(t, tag, int(row.before))
			expect.Equal(t, fmt.Sprintf("fetches of step %d after %d ids", row.step, row.before), len(source.all("orders")), 1)
			slow(t, tag, 1)
			expect.Equal(t, fmt.Sprintf("fetches of step %d after %d ids", row.step, row.before+1), len(source.all("orders")), 2)
		})
	}
}

// The mark is met once for each range: draws after it are as plain as those before, and so are
// those of the next range.
func TestDrawsAfterTheMarkArePlainAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, newShelf("orders", 1, 100), Config{})
		tag := handle(t, s, "orders")
		for id := range int64(1000) {
			slow(t, tag, 1)
			n := tag.head.Load()
			if p := n.pos; p < 0 && p >= n.mark && n.atMark(p+1) {
				t.Fatalf("after %d ids position %d is not below %d", id+1, p, n.limit)
			}
			if n.used() == 0 {
				t.Fatalf("after %d ids the handle lags", id+1)
			}
		}
	})
}

// A batch that goes over the mark is as good as single draws.
func TestBatchOverTheMarkFetchesToo(t *testing.T) {
	for _, k := range []int{200, 201, 1999, 2000} {
		bubble(t, func(t *testing.T) {
			source := newShelf("orders", 1, 2000)
			s := open(t, source, Config{})
			nextN(t, handle(t, s, "orders"), k)
			synctest.Wait()
			if got, want := len(source.all("orders")), 1+min(k/201, 1); got != want {
				t.Errorf("%d fetches after a batch of %d", got, k)
			}
		})
	}
}

// steady draws n ids at equal distances of time, over a whole number of periods.
func steady(t *testing.T, tag *Tag, every time.Duration, n int) {
	t.Helper()
	for range n {
		time.Sleep(every)
		next(t, tag)
	}
}

// The first fetch asks for what the source wants to give, the second for the same, whatever the
// demand; then it follows.
func TestFirstStepsAreTheSources(t *testing.T) {
	for _, row := range []struct {
		step  int64 // of the row; 0 = no wish
		first []int64
	}{
		{50, []int64{0, 50, 100, 200}},
		{0, []int64{0, DefaultStep, 2 * DefaultStep, 4 * DefaultStep}},
	} {
		bubble(t, func(t *testing.T) {
			source := newShelf("orders", 1, row.step)
			s := open(t, source, Config{})
			slow(t, handle(t, s, "orders"), 4*int(cmp.Or(row.step, DefaultStep)))
			if got := source.asked("orders"); !slices.Equal(got[:min(len(got), 4)], row.first) {
				t.Errorf("asked for %d, want %d", got, row.first)
			}
			expect.Equal(t, "the least step", only(t, s).LeastStep, row.step)
		})
	}
}

func TestStepIsWhatLastsForAPeriod(t *testing.T) {
	for _, row := range []struct {
		name  string
		every time.Duration // between two ids
		want  int64         // step in the end: of a period of 900 s
	}{
		{"ten a second", 100 * time.Millisecond, 9000},
		{"one a second", time.Second, 900},
		{"just the least", 9 * time.Second, 100},
		{"less than the least", time.Minute, 100},
	} {
		bubble(t, func(t *testing.T) {
			source := newShelf("orders", 1, 100)
			s := open(t, source, Config{})
			steady(t, handle(t, s, "orders"), row.every, int(6*time.Hour/row.every))
			if got := only(t, s).Step; got < row.want*95/100 || got > row.want*105/100 {
				t.Errorf("%s: the step is %d, want about %d", row.name, got, row.want)
			}
		})
	}
}

func TestQuietTagComesDownByHalvesToItsLeastStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 100)
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		steady(t, tag, 100*time.Millisecond, 36_000*3)
		busy := only(t, s).Step
		steady(t, tag, time.Minute, 40*24*60)
		asked := source.asked("orders")
		if last := asked[len(asked)-1]; busy < 8000 || last != 100 {
			t.Errorf("busy %d, quiet %d", busy, last)
		}
		for i := 2; i < len(asked); i++ {
			if asked[i] > 2*asked[i-1] || 2*asked[i] < asked[i-1] {
				t.Errorf("from %d to %d: more than a factor 2", asked[i-1], asked[i])
			}
		}
	})
}

// The row's step can be changed while the tag is in use: it holds from the next fetch but one, up
// or down.
func TestLeastStepIsFollowed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 10)
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		steady(t, tag, time.Minute, 100)
		wantSteps(t, s, 15, 10)
		source.mu.Lock()
		source.rows["orders"].step = 500
		source.mu.Unlock()
		steady(t, tag, time.Minute, 100)
		wantSteps(t, s, 500, 500)
	})
}

func wantSteps(t *testing.T, s *Segments, step, least int64) {
	t.Helper()
	expect.Equal(t, "the step", only(t, s).Step, step)
	expect.Equal(t, "the least step", only(t, s).LeastStep, least)
}

// A step never leaves its bounds, whatever was drawn in whatever time, and never changes by more
// than a factor 2.
func TestStepStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := &Config{Period: rapid.Custom(anyTime).Draw(t, "period"), MaxStep: rapid.Int64Range(1, 1<<40).Draw(t, "most")}
		least := rapid.Int64Range(1, 1000).Draw(t, "least")
		p, now, drawn := &pace{}, time.Unix(0, 0), int64(0)
		for i := range 50 {
			last := p.step
			done := p.next(config, sample{now, drawn})
			switch {
			case i == 0 && done.step != 0, i == 1 && done.step != least:
				t.Fatalf("fetch number %d asks for %d", i, done.step)
			case i < 2:
			case done.step < least, done.step > max(config.MaxStep, least):
				t.Fatalf("step %d: %d to %d", done.step, least, config.MaxStep)
			case done.step > 2*last, 2*done.step < last && last <= config.MaxStep:
				t.Fatalf("from %d to %d", last, done.step)
			case done.depth < 1 || done.depth > maxDepth:
				t.Fatalf("depth %d", done.depth)
			}
			if rapid.Bool().Draw(t, "fails") {
				p.fail(done)
			} else {
				p.succeed(config, done, cmp.Or(done.step, least), least)
			}
			if p.fetches == 0 {
				return
			}
			now, drawn = now.Add(rapid.Custom(anyTime).Draw(t, "time")-1), drawn+rapid.Int64Range(0, 1<<50).Draw(t, "drawn")
			p.starved = p.starved || rapid.Bool().Draw(t, "starved")
		}
	})
}

// What one fetch after another asks for, of a tag whose last one asked for 1,000 ids an hour ago.
func TestNextStepFollowsWhatWasDrawn(t *testing.T) {
	start := time.Unix(0, 0)
	for _, row := range []struct {
		name    string
		after   time.Duration // since the last fetch
		base    time.Duration // since a fetch long ago
		drawn   int64         // since the last fetch
		before  int64         // between that long ago and the last fetch
		starved bool
		most    int64
		step    int64
		depth   int
	}{
		{name: "just in time", after: time.Hour, base: time.Hour, drawn: 1000, step: 1000},
		{name: "a little late", after: 66 * time.Minute, base: 66 * time.Minute, drawn: 1000, step: 909},
		{name: "a little early", after: 54 * time.Minute, base: 2 * time.Hour, drawn: 1000, before: 1000, step: 1111},
		{name: "far too early", after: time.Minute, base: time.Hour, drawn: 1000, step: 2000},
		{name: "far too late", after: 10 * time.Hour, base: 10 * time.Hour, drawn: 1000, step: 500},
		{name: "at once after a fetch, with nothing drawn", after: time.Millisecond, base: 59 * time.Minute, before: 100, step: 1000},
		{name: "the same, but a period has shown less demand", after: time.Millisecond, base: time.Hour, before: 700, step: 700},
		{name: "the same, and it has shown more", after: time.Millisecond, base: time.Hour, before: 7000, step: 1000},
		{name: "in no time", drawn: 5, step: 2000},
		{name: "starved", after: 10 * time.Hour, base: 10 * time.Hour, drawn: 1000, starved: true, step: 2000},
		{name: "starved at the most", after: time.Hour, base: time.Hour, drawn: 1000, starved: true, most: 1999, step: 1000, depth: 2},
		{name: "more than the most, by less than twice", after: 45 * time.Minute, base: time.Hour, drawn: 1000, most: 1200, step: 1200},
	} {
		p := pace{fetches: 7, step: 1000, least: 1, depth: 1, deep: start, starved: row.starved}
		now := start.Add(100 * time.Hour)
		p.last = sample{now.Add(-row.after), 50_000}
		p.base = sample{now.Add(-row.base), 50_000 - row.before}
		got := p.next(&Config{Period: time.Hour, MaxStep: cmp.Or(row.most, 1<<40)}, sample{now, 50_000 + row.drawn})
		if got.step != row.step || got.depth != cmp.Or(row.depth, 1) || p.starved {
			t.Errorf("%s: step %d, depth %d, want %d, %d", row.name, got.step, got.depth, row.step, cmp.Or(row.depth, 1))
		}
		if p.fail(got); p.starved != row.starved {
			t.Errorf("%s: after a failure it is starved: %v", row.name, p.starved)
		}
	}
}

func anyTime(t *rapid.T) time.Duration {
	return time.Duration(rapid.OneOf(rapid.Int64Range(1, 1000), rapid.Int64Range(1, int64(720*time.Hour))).Draw(t, "ns"))
}

// Where the step may not grow and the chain is found empty all the same, more ranges are kept
// ready; fewer again when the demand has gone.
func TestDemandBeyondTheStepKeepsMoreRangesReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 100)
		source.setBefore(after(50 * time.Millisecond))
		s := open(t, source, Config{MaxStep: 100})
		tag := handle(t, s, "orders")
		most := 0
		for range 600 { // a burst of 650 each second: the source can give 2,000
			time.Sleep(time.Second)
			most = max(most, only(t, s).Ready)
			nextN(t, tag, 650)
		}
		stats := only(t, s)
		if stats.Starved == 0 || stats.Starved > 20 || most != maxDepth {
			t.Errorf("starved %d times, %d ranges ready at most", stats.Starved, most)
		}
		steady(t, tag, time.Minute, 3*24*60)
		if got := only(t, s); got.Ready > 1 || got.Step != 100 {
			t.Errorf("after it became quiet: %+v", got)
		}
	})
}

// While the step still grows there is one range ahead, however great the demand: what a restart
// wastes stays small.
func TestOneRangeIsReadyWhileTheStepGrows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 10)
		source.setBefore(after(time.Millisecond))
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		for drawn := int64(0); drawn < 100_000; drawn += 7 {
			nextN(t, tag, 7)
			time.Sleep(time.Duration(drawn%4) * time.Millisecond)
			synctest.Wait()
			stats := only(t, s)
			takes := source.all("orders")
			taken := takes[len(takes)-1].given.Hi - 1
			if wasted := taken - drawn - 7; stats.Ready > 1 || wasted > 2*stats.Step {
				t.Fatalf("step %d: %d ranges ready, %d ids not drawn", stats.Step, stats.Ready, wasted)
			}
		}
	})
}
