package segment

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Close ends the calls that wait and the Take that they wait for, and no id is given after it.
func TestCloseEndsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source, s, tag := drained(t, Config{}, newGate().wait)
		source.add("other", 1)
		waits := []<-chan call{draw(t.Context(), tag), draw(t.Context(), tag)}
		synctest.Wait()
		start := time.Now()
		s.Close()
		for _, one := range waits {
			wantIs(t, (<-one).err, ErrClosed, redisstore.ErrRefused)
		}
		expect.Equal(t, "how long the calls that waited went on", time.Since(start), 0)
		_, err := tag.Next(t.Context())
		wantIs(t, err, ErrClosed)
		wantIs(t, tag.Fill(t.Context(), make([]int64, 2)), ErrClosed)
		_, err = s.Next(t.Context(), "other")
		wantIs(t, err, ErrClosed)
		_, err = s.Tag(t.Context(), "orders")
		wantIs(t, err, ErrClosed)
		s.Close()
		expect.Equal(t, "Stats after Close", len(s.Stats()), 0)
		expect.Equal(t, "Totals after Close: tags", s.Totals().Tags, 0)
	})
	// a source that does not care for its context holds Close up, but no caller
	bubble(t, func(t *testing.T) {
		gate := newGate()
		_, s, tag := drained(t, Config{}, func(context.Context, string) error { return gate.wait(t.Context(), "") })
		one, closed := draw(t.Context(), tag), make(chan bool)
		synctest.Wait()
		go func() { s.Close(); close(closed) }()
		wantIs(t, (<-one).err, ErrClosed)
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait")
		default:
		}
		gate.open()
		<-closed
	})
	bubble(t, func(t *testing.T) { // no caller gets the failure
		_, s, tag := drained(t, Config{}, nil)
		s.Close()
		a := &attempt{done: make(chan struct{})}
		tag.chain.Load().settle(a, nil, 0, errDown)
		wantIs(t, a.err, ErrClosed)
	})
	bubble(t, func(t *testing.T) { // with ids left, and a retry to come
		source := newShelf("orders", 1, 1000)
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		source.setBefore(refused)
		nextN(t, tag, 500)
		synctest.Wait()
		s.Close()
		failures := s.Totals().Failures
		_, err := tag.Next(t.Context())
		wantIs(t, err, ErrClosed)
		time.Sleep(time.Hour)
		synctest.Wait()
		expect.Equal(t, "failures after the end", s.Totals().Failures, failures)
	})
}

func TestNamesAreChecked(t *testing.T) {
	s := open(t, newShelf("orders", 1, 10), Config{})
	for _, name := range []string{"", " ", "a b", "a/b", "a\x00", "ä", "a\n", strings.Repeat("x", 201), "a{b}"} {
		_, err := s.Next(t.Context(), name)
		wantIs(t, err, ErrInvalid, redisstore.ErrRefused)
		_, err = s.Tag(t.Context(), name)
		wantIs(t, err, ErrInvalid)
		wantIs(t, s.Fill(t.Context(), name, make([]int64, 1)), ErrInvalid)
	}
	for _, name := range []string{"a", "A.b_c:d~e@f-9", strings.Repeat("x", 200)} {
		_, err := s.Next(t.Context(), name)
		wantIs(t, err, ErrNotFound)
	}
}

func TestConfigIsTakenOrRefused(t *testing.T) {
	for _, row := range []struct {
		name   string
		config Config
		says   []string // nil = it is sound
	}{
		{"nothing", Config{}, nil},
		{"the least", Config{Period: time.Millisecond, MaxStep: 1, MaxTags: 1, Idle: time.Second, Timeout: time.Millisecond, Ahead: math.SmallestNonzeroFloat64}, nil},
		{"the most", Config{Period: 720 * time.Hour, MaxStep: 1 << 40, MaxTags: 10_000_000, Idle: 8784 * time.Hour, Timeout: 10 * time.Minute, Ahead: 0.9}, nil},
		{"below all", Config{Period: -1, MaxStep: -1, MaxTags: -1, Idle: -1, Timeout: -1, Ahead: -1}, []string{"period -1ns", "max step -1", "max tags -1", "idle -1ns", "timeout -1ns", "ahead -1"}},
		{"above all", Config{Period: 721 * time.Hour, MaxStep: 1<<40 + 1, MaxTags: 10_000_001, Idle: 8785 * time.Hour, Timeout: time.Hour, Ahead: 0.91}, []string{"period 721h", "max step", "max tags 10000001", "idle 8785h", "timeout 1h", "ahead 0.91"}},
		{"no number", Config{Ahead: math.NaN()}, []string{"ahead NaN"}},
	} {
		err := row.config.Check()
		if (err == nil) != (row.says == nil) {
			t.Errorf("%s: got error %v, want it to name %q", row.name, err, row.says)
		}
		for _, text := range row.says {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want it to say %q", row.name, err, text)
			}
		}
	}
	c := Config{}.withDefaults()
	if c.Period != 15*time.Minute || c.MaxStep != 1_000_000 || c.MaxTags != 10_000 || c.Idle != 24*time.Hour || c.Timeout != 5*time.Second || c.Ahead != 0.1 || c.Logger != slog.Default() {
		t.Errorf("the defaults are %+v", c)
	}
	for _, mistake := range []func(){func() { New(nil, Config{}) }, func() { New(tags(1), Config{MaxTags: -1}) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("New took it")
				}
			}()
			mistake()
		}()
	}
}

func TestStatsAreWhatLeafShows(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := newShelf("orders", 1, 2000)
		source.add("bills", 7)
		source.rows["bills"].delta = 4
		s := open(t, source, Config{})
		tag := handle(t, s, "orders")
		nextN(t, handle(t, s, "bills"), 3)
		synctest.Wait()
		nextN(t, tag, 5)
		want := []Stats{
			{
				Tag: "bills", Initialised: true, Ready: 1, Step: 10, LeastStep: 10, Fetches: 2,
				Current: Part{Pos: 19, Max: 47, Step: 10, Delta: 4}, Next: Part{Pos: 47, Max: 87, Step: 10, Delta: 4},
			},
			{Tag: "orders", Initialised: true, Step: 2000, LeastStep: 2000, Fetches: 1, Current: Part{Pos: 6, Max: 2001, Step: 2000, Delta: 1}},
		}
		got := s.Stats()
		if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("got %+v, want %+v", got, want)
		}
		nextN(t, tag, 500)
		synctest.Wait()
		nextN(t, tag, 1495)
		if got := s.Stats()[1]; got.Current != (Part{2001, 2001, 2000, 1}) || got.Next != (Part{2001, 4001, 2000, 1}) || got.Ready != 1 {
			t.Errorf("at the end of the range: %+v", got)
		}
		gate := newGate()
		source.add("late", 1)
		source.setBefore(gate.wait)
		go s.Next(t.Context(), "late")
		synctest.Wait()
		if got := s.Stats()[1]; got != (Stats{Tag: "late"}) || s.Totals().Tags != 2 {
			t.Errorf("before the first range: %+v", got)
		}
		gate.open()
		synctest.Wait()
		if got := s.Totals(); got != (Totals{Tags: 3, Fetches: 6}) && got != (Totals{Tags: 3, Fetches: 5}) {
			t.Errorf("Totals: got %+v, want 3 tags, 5 or 6 fetches and nothing else", got)
		}
	})
}
