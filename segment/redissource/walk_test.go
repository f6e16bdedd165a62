//go:build steps

package redissource_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

// drawing is two processes that draw ids of one tag, in ranges of two.
func drawing(calls ...int) func(t *testing.T) walk.Play {
	return func(t *testing.T) walk.Play {
		t.Helper()
		store, _ := storetest.Stepped(t)
		found, errs := make([][]int64, len(calls)), make([]error, len(calls))
		play := walk.Play{}
		var closers []func()
		for i, n := range calls {
			source := redissource.New(store, redissource.Config{Step: 2})
			segments := segment.New(source, segment.Config{MaxStep: 2})
			if _, err := segments.Next(t.Context(), "orders"); err != nil { // its tag is open
				t.Fatalf("Next orders: got error %v, want none", err)
			}
			closers = append(closers, segments.Close, func() { _ = source.Close() })
			play.Tasks = append(play.Tasks, walk.Task{Name: fmt.Sprint("process ", i), Do: func() {
				for range n {
					id, err := segments.Next(context.Background(), "orders")
					if err != nil {
						errs[i] = err
						return
					}
					found[i] = append(found[i], id)
				}
			}})
		}
		play.Check = func() error {
			var all []int64
			for i, ids := range found {
				if errs[i] != nil || !slices.IsSorted(ids) {
					return fmt.Errorf("process %d: %v, %w", i, ids, errs[i])
				}
				all = append(all, ids...)
			}
			slices.Sort(all)
			if n := len(all); len(slices.Compact(all)) < n {
				return fmt.Errorf("an id was drawn twice: %v", found)
			}
			return nil
		}
		play.Close = func() {
			for _, stop := range closers {
				stop()
			}
		}
		return play
	}
}

func TestWalkEveryOrderOfTwoProcesses(t *testing.T) {
	walk.Every(t, walk.Scene{Preemptions: 2, Begin: drawing(2, 2)})
}

func TestWalkRandomOrdersOfTwoProcesses(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: time.Second, Begin: drawing(4, 5)})
}
