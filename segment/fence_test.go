package segment

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// stripe is a small range, with its ids.
func stripe(t *rapid.T) (r Range, ids []int64) {
	r = Range{Lo: rapid.Int64Range(0, 60).Draw(t, "lo"), Delta: rapid.Int64Range(1, 8).Draw(t, "delta")}
	r.Hi = r.Lo + rapid.Int64Range(1, 30).Draw(t, "width")
	for id := r.Lo; id < r.Hi; id += r.Delta {
		ids = append(ids, id)
	}
	return r, ids
}

// What passes the fences shares no id with anything that has passed before; and a range that lies
// above everything always passes.
func TestNoIDPassesTheFencesTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f fences
		seen, high := map[int64]bool{}, int64(-1)
		for range 30 {
			r, ids := stripe(t)
			n := newNode(r, DefaultAhead)
			_, conflict := f.conflict(r.Lo, n.delta)
			if conflict && r.Lo > high {
				t.Fatalf("%+v lies above all, and was refused by %+v", r, f)
			}
			if conflict {
				continue
			}
			for _, id := range ids {
				if seen[id] {
					t.Fatalf("%d passed twice: %+v, %+v", id, r, f)
				}
				seen[id] = true
			}
			f, high = f.raised(n.last, n.delta), max(high, n.last)
		}
	})
}

func TestStripesHaveAFenceEach(t *testing.T) {
	var f fences
	for _, row := range []struct {
		r      Range
		passes bool
	}{
		{Range{Lo: 0, Hi: 300, Delta: 3}, true},
		{Range{Lo: 1, Hi: 31, Delta: 3}, true}, // another stripe may be lower
		{Range{Lo: 2, Hi: 9002, Delta: 3}, true},
		{Range{Lo: 31, Hi: 61, Delta: 3}, true},
		{Range{Lo: 28, Hi: 61, Delta: 3}, false}, // its own must not
		{Range{Lo: 58, Hi: 61, Delta: 3}, false},
		{Range{Lo: 61, Hi: 91, Delta: 3}, true},
		{Range{Lo: 62, Hi: 92, Delta: 4}, false}, // four stripes meet all of three
		{Range{Lo: 8000, Hi: 8006, Delta: 6}, false},
		{Range{Lo: 300, Hi: 306, Delta: 6}, true}, // six of three meet their own third alone
		{Range{Lo: 8999, Hi: 9010}, false},
		{Range{Lo: 9000, Hi: 9010}, true},
		{Range{Lo: 9003, Hi: 9010, Delta: 3}, false}, // no stripe goes below what had no stripes
		{Range{Lo: 9010, Hi: math.MaxInt64, Delta: math.MaxInt64}, true},
	} {
		n := newNode(row.r, DefaultAhead)
		if _, conflict := f.conflict(row.r.Lo, n.delta); conflict == row.passes {
			t.Fatalf("%+v passes: %v", row.r, row.passes)
		}
		if row.passes {
			f = f.raised(n.last, n.delta)
		}
	}
}

// A source that invents stripes without end gets one fence for all of them.
func TestFencesAreBounded(t *testing.T) {
	var f fences
	for i := range int64(10_000) {
		f = f.raised(1_000_000-i, 100_000)
		if len(f) > maxFences {
			t.Fatalf("there are %d", len(f))
		}
	}
	if _, conflict := f.conflict(1_000_000, 3); !conflict {
		t.Error("what is below the highest passed")
	}
	if _, conflict := f.conflict(1_000_001, 3); conflict {
		t.Error("what is above all was refused")
	}
}
