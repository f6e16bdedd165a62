package segment_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
)

// cellar is a store that lives in the test. It has the tags that it was given, and answers as it is
// told to.
type cellar struct {
	mu    sync.Mutex
	next  map[string]int64
	asked int
	fault error // what it answers instead
	hang  bool  // it answers nothing until its context ends
}

func newCellar(tag string, i, n int) *cellar {
	return &cellar{next: map[string]int64{segment.StripeTag(tag, i, n): 1}}
}

func (c *cellar) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.hang {
		c.mu.Unlock()
		<-ctx.Done()
		c.mu.Lock()
		return segment.Range{}, &redisstore.Error{Op: "take", Class: redisstore.ErrUnknownOutcome, Cause: ctx.Err()}
	}
	if c.fault != nil {
		return segment.Range{}, c.fault
	}
	if _, known := c.next[tag]; !known {
		return segment.Range{}, segment.ErrUnknownTag
	}
	step = max(step, 10)
	c.next[tag] += step
	return segment.Range{Lo: c.next[tag] - step, Hi: c.next[tag], Step: 10}, nil
}

func (c *cellar) breaks(fault error, hang bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault, c.hang = fault, hang
}

// times is how often it was asked since the last time.
func (c *cellar) times() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = 0
	return asked
}

// cellars are n stores with the tag orders, and what is made of them.
func cellars(t *testing.T, n int) ([]*cellar, *segment.Striped) {
	t.Helper()
	var all []*cellar
	stores := map[int]segment.Source{}
	for i := range n {
		all = append(all, newCellar("orders", i, n))
		stores[i] = all[i]
	}
	return all, striped(t, stores, n)
}

func striped(t *testing.T, stores map[int]segment.Source, n int) *segment.Striped {
	t.Helper()
	s, err := segment.NewStriped(stores, n, segment.StripedConfig{})
	expect.NoError(t, "segment.NewStriped", err)
	return s
}

var errAway = &redisstore.Error{Op: "take", Class: redisstore.ErrUnavailable, Cause: errors.New("connection refused")}

// one gives one range, whatever it is asked for.
type one segment.Range

func (o one) Take(context.Context, string, int64) (segment.Range, error) {
	return segment.Range(o), nil
}

// The ids of a store's range, each times n plus i, are the ids of the range that comes out: all of
// them, and no others. What would be beyond 2^63 is refused.
func TestStripeNumbersEachIDOfItsStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, segment.MaxStripes).Draw(t, "n")
		i := rapid.IntRange(0, n-1).Draw(t, "i")
		in := segment.Range{
			Lo:    rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(math.MaxInt64/int64(n)-3, math.MaxInt64/int64(n)-1), rapid.Int64Range(math.MaxInt64/int64(n)-300, math.MaxInt64/int64(n)-1), rapid.Int64Range(0, math.MaxInt64-1)).Draw(t, "lo"),
			Delta: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 20), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "delta"),
			Step:  rapid.Int64Range(0, 100).Draw(t, "step"),
		}
		in.Hi = in.Lo + min(math.MaxInt64-in.Lo, rapid.OneOf(rapid.Int64Range(1, 5), rapid.Int64Range(1, 300)).Draw(t, "width"))
		s, err := segment.NewStriped(map[int]segment.Source{i: one(in)}, n, segment.StripedConfig{})
		if err != nil {
			t.Fatalf("segment.NewStriped: got error %v, want none", err)
		}
		out, err := s.Take(t.Context(), "orders", 0)
		want := idsOf(in)
		for k, id := range want {
			want[k] = new(big.Int).Add(new(big.Int).Mul(id, big.NewInt(int64(n))), big.NewInt(int64(i)))
		}
		if want[len(want)-1].Cmp(big.NewInt(math.MaxInt64-1)) > 0 {
			if !errors.Is(err, segment.ErrExhausted) {
				t.Fatalf("%+v became %+v, %v", in, out, err)
			}
			return
		}
		if got := idsOf(out); err != nil || !slices.EqualFunc(got, want, func(a, b *big.Int) bool { return a.Cmp(b) == 0 }) {
			t.Fatalf("%+v of stripe %d of %d became %+v, %v: %v, want %v", in, i, n, out, err, got, want)
		}
		if out.Step != in.Step || out.Delta%int64(n) != 0 {
			t.Fatalf("%+v became %+v", in, out)
		}
	})
}

// idsOf lists a range's ids with numbers that do not overflow.
func idsOf(r segment.Range) (ids []*big.Int) {
	hi, delta := big.NewInt(r.Hi), big.NewInt(max(1, r.Delta))
	for id := big.NewInt(r.Lo); id.Cmp(hi) < 0; id = new(big.Int).Add(id, delta) {
		ids = append(ids, id)
	}
	return ids
}

func TestStripeRefusesWhatIsNoRange(t *testing.T) {
	for _, in := range []segment.Range{{}, {Lo: -1, Hi: 5}, {Lo: 5, Hi: 5}, {Lo: 6, Hi: 5}, {Lo: 1, Hi: 5, Delta: -1}, {Lo: math.MinInt64, Hi: math.MaxInt64}} {
		if out, err := striped(t, map[int]segment.Source{0: one(in)}, 2).Take(t.Context(), "orders", 0); !errors.Is(err, segment.ErrBadRange) {
			t.Errorf("%+v became %+v, %v", in, out, err)
		}
	}
}

func TestStripesAreChecked(t *testing.T) {
	good := one{Lo: 1, Hi: 2}
	for _, row := range []struct {
		name   string
		stores map[int]segment.Source
		n      int
		config segment.StripedConfig
		fault  string
	}{
		{"no store", nil, 3, segment.StripedConfig{}, "without a store"},
		{"index below 0", map[int]segment.Source{-1: good}, 3, segment.StripedConfig{}, "stripe -1: 0 to 2"},
		{"index n", map[int]segment.Source{0: good, 3: good}, 3, segment.StripedConfig{}, "stripe 3: 0 to 2"},
		{"nil", map[int]segment.Source{1: nil}, 3, segment.StripedConfig{}, "stripe 1 has no store"},
		{"n of 0", map[int]segment.Source{0: good}, 0, segment.StripedConfig{}, "0 stripes"},
		{"n too large", map[int]segment.Source{0: good}, segment.MaxStripes + 1, segment.StripedConfig{}, "1025 stripes"},
		{"timeout", map[int]segment.Source{0: good}, 1, segment.StripedConfig{Timeout: time.Nanosecond}, "timeout"},
	} {
		if s, err := segment.NewStriped(row.stores, row.n, row.config); s != nil || err == nil || !strings.Contains(err.Error(), row.fault) {
			t.Errorf("%s: got %v and error %v, want none and %q", row.name, s, err, row.fault)
		}
	}
	if s := striped(t, map[int]segment.Source{2: good}, 3); take(t, s, "orders", 0) != (segment.Range{Lo: 5, Hi: 6, Delta: 3}) {
		t.Error("one of three stores is not used alone")
	}
}

// Two tags that are asked for by turns use all stores alike as well.
func TestStoresAdvanceAlike(t *testing.T) {
	all, s := cellars(t, 3)
	for i, c := range all {
		c.next[segment.StripeTag("bills", i, 3)] = 1
	}
	for range 10 * 3 {
		take(t, s, "orders", 0)
		take(t, s, "bills", 0)
	}
	for i, c := range all {
		for _, tag := range []string{"orders", "bills"} {
			expect.Equal(t, fmt.Sprintf("where store %d has %s", i, tag), c.next[segment.StripeTag(tag, i, 3)], 101)
		}
	}
}

func TestStoreThatIsAwayIsPassedOverAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, s := cellars(t, 3)
		all[1].breaks(errAway, false)
		for range 30 {
			take(t, s, "orders", 0)
		}
		expect.Equal(t, "how often it was asked within an instant", all[1].times(), 1)
		if stats := s.Stats()[1]; stats.Index != 1 || stats.Refused != 1 || stats.DownUntil.Before(time.Now()) || !strings.Contains(stats.LastError, "connection refused") {
			t.Errorf("the statistics say %+v", stats)
		}
		for range 600 { // ten minutes
			time.Sleep(time.Second)
			take(t, s, "orders", 0)
			take(t, s, "orders", 0)
			take(t, s, "orders", 0)
		}
		if asked := all[1].times(); asked < 18 || asked > 60 {
			t.Errorf("it was asked %d times in ten minutes", asked)
		}
		all[1].breaks(nil, false)
		time.Sleep(31 * time.Second)
		for range 30 {
			take(t, s, "orders", 0)
		}
		expect.Equal(t, "how often it was asked for 30 ranges, when it was back", all[1].times(), 10)
		if stats := s.Stats()[1]; stats.Taken != 10 || !stats.DownUntil.IsZero() {
			t.Errorf("the statistics say %+v", stats)
		}
	})
}

// Many calls that fail at once are one failure: the store is asked again soon.
func TestFailuresAtOnceCountAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, s := cellars(t, 2)
		all[0].breaks(nil, true)
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() { take(t, s, "orders", 0) })
		}
		calls.Wait()
		if down := time.Until(s.Stats()[0].DownUntil); down > 100*time.Millisecond {
			t.Errorf("it is left alone for %v", down)
		}
	})
}

// A store that does not answer takes its share of the time and no more, and what it may have given
// is a gap.
func TestStoreThatHangsStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for attempt := range 40 { // each begins with any of the three
			all, s := cellars(t, 3)
			all[0].breaks(nil, true)
			all[1].breaks(nil, true)
			limit := []time.Duration{time.Hour, 600 * time.Millisecond}[attempt%2]
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			start := time.Now()
			taken, err := s.Take(ctx, "orders", 0)
			cancel()
			if err != nil || taken.Lo%3 != 2 || time.Since(start) > 2*time.Second {
				t.Errorf("within %v: %+v, %v after %v", limit, taken, err, time.Since(start))
			}
			for range 600 {
				time.Sleep(time.Second)
				take(t, s, "orders", 0)
			}
			if asked := all[0].times() + all[1].times(); asked > 100 {
				t.Errorf("the two were asked %d times in ten minutes", asked)
			}
		}
	})
}

// A caller that gives up shows nothing about a store.
func TestCallerThatGivesUpTakesNoStoreDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, s := cellars(t, 1)
		all[0].breaks(nil, true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := s.Take(ctx, "orders", 0)
		refused(t, err, redisstore.ErrUnknownOutcome)
		expect.Error(t, "Take, given up", err, context.Canceled)
		expect.Equal(t, "until when the store is left alone", s.Stats()[0].DownUntil, time.Time{})
		_, err = s.Take(ctx, "orders", 0)
		refused(t, err, redisstore.ErrUnavailable)
		if all[0].times() != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("a store was asked for a context that has ended, or %v", err)
		}
	})
}

func TestStripedReportsTheWorstAnswerOfItsStores(t *testing.T) {
	unknown := &redisstore.Error{Op: "take", Class: redisstore.ErrUnknownOutcome, Cause: context.DeadlineExceeded}
	for _, row := range []struct {
		answers []error
		want    error
	}{
		{[]error{segment.ErrUnknownTag, segment.ErrUnknownTag}, segment.ErrUnknownTag},
		{[]error{segment.ErrUnknownTag, errAway}, redisstore.ErrUnavailable},
		{[]error{segment.ErrUnknownTag, segment.ErrExhausted}, segment.ErrExhausted},
		{[]error{segment.ErrRetired, segment.ErrExhausted}, segment.ErrRetired},
		{[]error{segment.ErrRetired, errAway}, redisstore.ErrUnavailable},
		{[]error{errAway, unknown, segment.ErrUnknownTag}, redisstore.ErrUnknownOutcome},
		{[]error{unknown, errAway}, unknown},
	} {
		all, s := cellars(t, len(row.answers))
		for i, answer := range row.answers {
			all[i].breaks(answer, false)
		}
		_, err := s.Take(t.Context(), "orders", 0)
		refused(t, err, row.want)
		for _, other := range []error{segment.ErrUnknownTag, segment.ErrExhausted, segment.ErrRetired, redisstore.ErrUnavailable, redisstore.ErrUnknownOutcome} {
			if errors.Is(err, other) && !errors.Is(row.want, other) && !errors.Is(other, row.want) {
				t.Errorf("%v is %v, too", err, other)
			}
		}
		for i := range row.answers {
			if !strings.Contains(err.Error(), fmt.Sprintf("stripe %d: ", i)) {
				t.Errorf("%v does not name stripe %d", err, i)
			}
		}
	}
	all, s := cellars(t, 2)
	all[0].breaks(unknown, false)
	all[1].breaks(segment.ErrUnknownTag, false)
	if _, err := s.Take(t.Context(), "orders", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the deadline is not in %v", err)
	}
}

// Strangers' names do not make a store that is away be asked, and do not wait for it.
func TestUnknownTagsDoNotWaitForAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, s := cellars(t, 2)
		all[1].breaks(nil, true)
		for range 2 { // one of the two begins with the store that hangs
			take(t, s, "orders", 0)
		}
		all[1].times()
		start := time.Now()
		for i := range 100 {
			_, err := s.Take(t.Context(), fmt.Sprintf("stranger-%d", i), 0)
			refused(t, err, redisstore.ErrUnavailable)
		}
		if time.Since(start) > 0 || all[1].times() > 0 {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

// Processes that do not agree on which store is which, or how many there are, are refused.
func TestStripesOutOfOrderAreRefused(t *testing.T) {
	all, _ := cellars(t, 2)
	for name, stores := range map[string]map[int]segment.Source{"swapped": {0: all[1], 1: all[0]}, "counted otherwise": {0: all[0], 1: all[1], 2: all[0]}} {
		t.Run(name, func(t *testing.T) {
			_, err := striped(t, stores, len(stores)).Take(t.Context(), "orders", 0)
			refused(t, err, segment.ErrUnknownTag)
		})
	}
}
