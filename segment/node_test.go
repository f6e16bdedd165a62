package segment

import (
	"context"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// anyRange draws a range of the shapes that matter: of one id, of few, of all that there are;
// distances small and huge; at 0 and at the end of the numbers.
func anyRange(t *rapid.T) Range {
	delta := rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "delta")
	lo := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, math.MaxInt64-1), rapid.Int64Range(math.MaxInt64-100, math.MaxInt64-1)).Draw(t, "lo")
	width := rapid.OneOf(rapid.Int64Range(1, 100), rapid.Int64Range(1, math.MaxInt64)).Draw(t, "width")
	return Range{Lo: lo, Hi: lo + min(width, math.MaxInt64-lo), Delta: delta}
}

func TestPositionsAreTheRangesIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRange(t)
		if err := r.check(); err != nil {
			t.Fatalf("checking %v: got error %v, want none", r, err)
		}
		ahead := rapid.Float64Range(1e-9, 0.9).Draw(t, "ahead")
		n := newNode(r, ahead)
		lo, hi, delta := big.NewInt(r.Lo), big.NewInt(r.Hi), big.NewInt(max(r.Delta, 1))
		at := func(i int64) *big.Int { return new(big.Int).Add(lo, new(big.Int).Mul(big.NewInt(i), delta)) }
		if n.count < 1 || at(n.count-1).Cmp(hi) >= 0 || at(n.count).Cmp(hi) < 0 {
			t.Fatalf("%+v has %d ids", r, n.count)
		}
		for _, i := range []int64{0, n.count - 1, rapid.Int64Range(0, n.count-1).Draw(t, "i")} {
			if got := n.id(i - n.count + 1); at(i).Cmp(big.NewInt(got)) != 0 {
				t.Fatalf("%+v: id number %d is %d", r, i, got)
			}
		}
		if n.left() != n.count || n.used() != 0 || n.passed() || n.last != n.id(0) {
			t.Fatalf("%+v: %d left, %d used", r, n.left(), n.used())
		}
		if n.mark <= -n.count || n.mark > 0 {
			t.Fatalf("%+v: the mark is %d", r, n.mark)
		}
	})
}

// Draws of any number each, also of more than there is: every id once, in order, and none when all
// are gone, however often one asks.
func TestDrawsGiveEveryPositionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyRange(t)
		r.Hi = r.Lo + min(r.Hi-r.Lo, 300)
		r.Delta = min(r.Delta, 400)
		n := newNode(r, DefaultAhead)
		var got []int64
		for _, k := range rapid.SliceOfN(rapid.Int64Range(1, 100), 320, 320).Draw(t, "draws") {
			p, count := n.draw(k)
			ids := make([]int64, count)
			n.write(ids, p)
			got = append(got, ids...)
		}
		var want []int64
		for id := r.Lo; id < r.Hi && id >= r.Lo; id += max(r.Delta, 1) {
			want = append(want, id)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v gave %d, want %d", r, got, want)
		}
		if n.left() != 0 || n.used() != n.count {
			t.Fatalf("%d left, %d used", n.left(), n.used())
		}
	})
}

// Callers that come too late draw positions beyond the end. However near to 2^63 the range lies,
// that gives no id.
func TestLateDrawsDoNotOverflow(t *testing.T) {
	for _, r := range []Range{
		{Lo: 0, Hi: math.MaxInt64},
		{Lo: math.MaxInt64 - 1, Hi: math.MaxInt64},
		{Lo: math.MaxInt64 - 10, Hi: math.MaxInt64, Delta: math.MaxInt64},
		{Lo: 0, Hi: math.MaxInt64, Delta: math.MaxInt64},
		{Lo: 1, Hi: math.MaxInt64, Delta: math.MaxInt64 / 2},
	} {
		n := newNode(r, DefaultAhead)
		n.pos = 0
		for range 1000 {
			if _, err := single(n); err == nil {
				t.Fatalf("%+v: %d is left", r, n.pos)
			}
			if _, got := n.draw(1 << 61); got != 0 {
				t.Fatalf("%+v gave %d ids when it was used up", r, got)
			}
		}
		if n.left() != 0 || n.used() != n.count {
			t.Errorf("%+v: %d left, %d used", r, n.left(), n.used())
		}
	}
}

func TestDroppedNodeGivesNothing(t *testing.T) {
	n := newNode(Range{Lo: 10, Hi: 20}, DefaultAhead)
	n.draw(3)
	expect.Equal(t, "ids that were lost", n.drop(), 7)
	if _, got := n.draw(1); got != 0 || n.left() != 0 || n.drop() != 0 {
		t.Error("it gave an id")
	}
	if _, err := single(n); err == nil {
		t.Error("it gave an id")
	}
}

// single draws one id as Next does. It fails where that needs further checks.
func single(n *node) (int64, error) {
	return n.next(context.Background(), nil, func(*Tag, context.Context, *node, int64) (int64, error) { return 0, errGone })
}

func TestWhatIsNoRangeIsRefused(t *testing.T) {
	for _, r := range []Range{{}, {Lo: 5, Hi: 5}, {Lo: 5, Hi: 4}, {Lo: -1, Hi: 4}, {Lo: 5, Hi: -4}, {Lo: 1, Hi: 9, Delta: -1}, {Lo: math.MinInt64, Hi: math.MaxInt64}} {
		s := New(sourceFunc(func() (Range, error) { return r, nil }), Config{})
		_, err := s.Next(t.Context(), "x")
		wantIs(t, err, ErrBadRange)
		s.Close()
	}
}

// sourceFunc is a source of one tag.
type sourceFunc func() (Range, error)

func (f sourceFunc) Take(context.Context, string, int64) (Range, error) { return f() }

// script is the ranges of one tag, one after the other.
type script struct {
	ranges []Range
	next   int
}

func (s *script) Take(context.Context, string, int64) (Range, error) {
	if s.next == len(s.ranges) {
		return Range{}, ErrExhausted
	}
	s.next++
	return s.ranges[s.next-1], nil
}

// One caller gets the ids of all ranges, whatever these look like, in order, each once, and none
// but those; then what the source answers.
func TestOneCallerGetsTheRangesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []int64
		ranges := &script{}
		lo := rapid.Int64Range(0, math.MaxInt64-1_000_000).Draw(t, "lo")
		for range rapid.IntRange(1, 12).Draw(t, "ranges") {
			delta := rapid.Int64Range(1, 100).Draw(t, "delta")
			hi := lo + rapid.Int64Range(1, 500).Draw(t, "width")
			ranges.ranges = append(ranges.ranges, Range{Lo: lo, Hi: hi, Delta: delta})
			for id := lo; id < hi; id += delta {
				want = append(want, id)
			}
			lo = hi + rapid.Int64Range(0, 5).Draw(t, "gap")
		}
		s := New(ranges, Config{Ahead: rapid.Float64Range(0, 0.9).Draw(t, "ahead")})
		defer s.Close()
		tag, err := s.Tag(t.Context(), "x")
		if err != nil {
			t.Fatalf("Tag: got error %v, want none", err)
		}
		got, err := drain(t, tag, len(want))
		if !slices.Equal(got, want) {
			t.Fatalf("%+v gave %d, want %d, then %v", ranges.ranges, got, want, err)
		}
		if _, err := tag.Next(t.Context()); err == nil {
			t.Fatal("it gave more")
		}
	})
}

// drain draws n ids by calls of both kinds.
func drain(t *rapid.T, tag *Tag, n int) ([]int64, error) {
	var ids []int64
	for len(ids) < n {
		if rapid.Bool().Draw(t, "single") {
			id, err := tag.Next(t.Context())
			if err != nil {
				return ids, err
			}
			ids = append(ids, id)
			continue
		}
		more := make([]int64, min(rapid.IntRange(0, 200).Draw(t, "k"), n-len(ids)))
		if err := tag.Fill(t.Context(), more); err != nil {
			return ids, err
		}
		ids = append(ids, more...)
	}
	return ids, nil
}
