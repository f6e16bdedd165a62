//go:build check

package locks

import (
	"slices"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/lock"
)

// Readers who are let in by the look of one of them have a fence each. The history of their grants
// has found that they did not: the one who looked was told the last one's.
func TestReadersLetInTogetherHaveFencesOfTheirOwn(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	const readers = 4
	var mu sync.Mutex
	var fences []int64
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			held, err := l.locks.locks.Acquire(t.Context(), waitedFor, lock.Request{Mode: lock.ModeShared})
			if err != nil {
				t.Errorf("a reader: got error %v, want the lock", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			fences = append(fences, held.Fence())
			expect.Error(t, "Release", held.Release(t.Context()), nil)
		})
	}
	l.waits(readers)
	// as if the lease had ended, so that no waiter is told
	chaostest.Do(t, l.server, "DEL", l.locks.locks.Key(waitedFor))
	all.Wait()
	_ = l.held.Release(t.Context()) // it was lost
	slices.Sort(fences)
	if len(slices.Compact(slices.Clone(fences))) != readers {
		t.Errorf("fences %d", fences)
	}
}
