package counter_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func (c counters) manyAtOnce(t *testing.T) {
	const callers, each = 64, 20
	got := make([][]counter.Range, callers)
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range each {
				by := int64((caller+i)%3 + 1)
				r, err := c.Add(t.Context(), "many", counter.Request{By: by})
				if err != nil {
					t.Errorf("Add of %d by one of many: %v", by, err)
					return
				}
				expect.Equal(t, "how many values the call got", r.Last-r.First+1, by)
				got[caller] = append(got[caller], r)
			}
		})
	}
	wg.Wait()
	for _, mine := range got {
		if !slices.IsSortedFunc(mine, func(a, b counter.Range) int { return int(a.First - b.First) }) {
			t.Errorf("values fell from one call to the next: %v", mine)
		}
	}
	all := slices.Concat(got...)
	slices.SortFunc(all, func(a, b counter.Range) int { return int(a.First - b.First) })
	next := int64(1)
	for _, r := range all {
		if r.First != next {
			t.Fatalf("%+v where %d comes next: twice, or a gap without a failure", r, next)
		}
		next = r.Last + 1
	}
	if len(all) == callers*each {
		c.want(t, "many", next-1)
	}
}

func (c counters) oneRequestManyTimes(t *testing.T) {
	got := make([]counter.Range, 32)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			r, err := c.Add(t.Context(), "one", counter.Request{By: 7, RequestID: "the same"})
			expect.Error(t, "Add one", err, nil)
			got[i] = r
		})
	}
	wg.Wait()
	for _, r := range got {
		expect.Equal(t, "range of a request that was sent often", r, counter.Range{First: 1, Last: 7})
	}
	c.want(t, "one", 7)
}
