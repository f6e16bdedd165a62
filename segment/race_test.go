package segment

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// 64 callers, single draws and batches of all sizes, by handle and by name, over ranges of all
// sizes: what they got together is what was given out, each id once and none left out, and each
// caller's ids rise.
func TestManyCallersGetEachIDOnce(t *testing.T) {
	for _, row := range []struct {
		name                 string
		start, step, maxStep int64
		delta                int64
	}{
		{"ranges of one id", 1, 1, 1, 0},
		{"tiny ranges", 1, 7, 7, 0},
		{"ranges that grow", 1, 1, 0, 0},
		{"every seventh id", 3, 5, 40, 7},
		{"large ranges", 0, 1_000_000, 0, 0},
		{"one huge range", 0, math.MaxInt64, 0, 0},
		{"huge distances", 5, 1000, 0, 1 << 40},
	} {
		t.Run(row.name, func(t *testing.T) {
			source := newShelf("orders", row.start, row.step)
			source.rows["orders"].delta = row.delta
			s := open(t, source, Config{MaxStep: row.maxStep})
			const callers, each = 64, 300
			got := make([][]int64, callers)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() { got[i] = greedy(t, s, each) })
			}
			all.Wait()
			var ids []int64
			for _, mine := range got {
				if !slices.IsSorted(mine) {
					t.Error("the ids of one caller do not rise")
				}
				ids = append(ids, mine...)
			}
			slices.Sort(ids)
			for i, id := range ids {
				if want := row.start + int64(i)*max(row.delta, 1); id != want {
					t.Fatalf("id number %d is %d, want %d", i, id, want)
				}
			}
			if len(ids) < callers*each {
				t.Errorf("got %d ids, want %d at least", len(ids), callers*each)
			}
			source.onlyOneAtATime(t)
		})
	}
}

// greedy draws that many ids at least.
func greedy(t *testing.T, s *Segments, n int) (ids []int64) {
	tag, err := s.Tag(t.Context(), "orders")
	if err != nil {
		t.Errorf("Tag: got error %v, want none", err)
		return nil
	}
	for len(ids) < n {
		more := make([]int64, 1+rand.IntN(1+rand.IntN(40)))
		switch rand.IntN(4) {
		case 0:
			err = s.Fill(t.Context(), "orders", more)
		case 1:
			err = tag.Fill(t.Context(), more)
		case 2:
			more[0], err = s.Next(t.Context(), "orders")
			more = more[:1]
		case 3:
			more[0], err = tag.Next(t.Context())
			more = more[:1]
		}
		if err != nil {
			t.Errorf("a draw: got error %v, want none", err)
			return ids
		}
		ids = append(ids, more...)
	}
	return ids
}

// Callers of many tags that come and go, while others read the stats and in the end all is closed
// under their hands.
func TestUseUntilClosedIsSafe(t *testing.T) {
	source := tags(40)
	s := New(source, Config{MaxTags: 30})
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for n := 0; ; n++ {
				name := "tag-" + string(rune('0'+(n+i)%10))
				if n%17 == 0 {
					name = "unknown"
				}
				_, err := s.Next(t.Context(), name)
				if n%50 == 0 {
					s.Stats()
					s.Totals()
				}
				if err != nil && n%17 != 0 {
					wantIs(t, err, ErrClosed)
					return
				}
			}
		})
	}
	for len(source.all("tag-3")) < 5 {
		runtime.Gosched()
	}
	s.Close()
	all.Wait()
}

func TestDrawsDoNotAllocate(t *testing.T) {
	source := newShelf("orders", 1, 1_000_000)
	s := open(t, source, Config{})
	tag, ctx, ids := handle(t, s, "orders"), t.Context(), make([]int64, 20)
	for name, draw := range map[string]func(){
		"Tag.Next":       func() { tag.Next(ctx) },
		"Tag.NextN":      func() { tag.Fill(ctx, ids) },
		"Segments.Next":  func() { s.Next(ctx, "orders") },
		"Segments.NextN": func() { s.Fill(ctx, "orders", ids) },
	} {
		expect.Equal(t, "allocations of "+name, testing.AllocsPerRun(1000, draw), 0)
	}
}
