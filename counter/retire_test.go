package counter_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// While others add, a counter is retired: everything that they got is at or below the last value,
// and nothing comes after it.
func TestRetireReturnsTheLastOfAllValues(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		c := counter.New(store, counter.Config{})
		defer c.Close()
		if _, err := c.Retire(t.Context(), "never"); !errors.Is(err, counter.ErrNotFound) {
			t.Errorf("a counter that was never used: %v", err)
		}
		got, begun := make([]int64, 8), make(chan struct{}, 8)
		var adding sync.WaitGroup
		for i := range got {
			adding.Go(func() {
				for {
					value, err := c.Incr(t.Context(), "k")
					if err != nil {
						wantRefused(t, err, counter.ErrOverflow)
						return
					}
					if got[i] == 0 {
						begun <- struct{}{}
					}
					got[i] = value
				}
			})
		}
		for range got {
			<-begun
		}
		last, err := c.Retire(t.Context(), "k")
		expect.NoError(t, "Retire k", err)
		adding.Wait()
		largest := int64(0)
		for _, value := range got {
			largest = max(largest, value)
		}
		expect.Equal(t, "the largest value that was handed out", largest, last)
		if again, err := c.Retire(t.Context(), "k"); err != nil || again != last {
			t.Errorf("asked again: %d, %v", again, err)
		}
		expect.NoError(t, "Set k", c.Set(t.Context(), "k", last, counter.SetOptions{Back: true}))
		if value, err := c.Incr(t.Context(), "k"); err != nil || value != last+1 {
			t.Errorf("taken back: %d, %v", value, err)
		}
	})
}
