package counter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
	"github.com/coatcheck/coatcheck/scripts"
)

// gets holds the reads of counters until the test lets them go, and counts those under way.
type gets struct {
	mu             sync.Mutex
	underWay, most int
	let            chan struct{}
}

type getKey struct{}

func (g *gets) CallStarted(ctx context.Context, op string) context.Context {
	if op != scripts.CounterGet.Name {
		return ctx
	}
	g.mu.Lock()
	g.underWay++
	g.most = max(g.most, g.underWay)
	g.mu.Unlock()
	<-g.let
	return context.WithValue(ctx, getKey{}, true)
}

func (g *gets) CallEnded(ctx context.Context, _ observe.Call) {
	if ctx.Value(getKey{}) != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.underWay--
	}
}

// Calls of others wait for those of a page that are under way, so these are few.
func TestPageIsReadSomeCountersAtATime(t *testing.T) {
	seen := &gets{let: make(chan struct{})}
	store := storetest.Open(t, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{{CallStarted: seen.CallStarted, CallEnded: seen.CallEnded}}})
	counters := counter.New(store, counter.Config{})
	t.Cleanup(func() { _ = counters.Close() })
	const n = 300
	for i := range n {
		_, err := counters.Add(t.Context(), fmt.Sprint("k", i), counter.Request{By: 1})
		expect.NoError(t, "Add", err)
	}
	var listing sync.WaitGroup
	listing.Go(func() {
		page, _, err := counters.List(t.Context(), "", "", n)
		expect.NoError(t, "List", err)
		expect.Equal(t, "counters of the page", len(page), n)
	})
	const few = 64
	expect.Eventually(t, "some are being read", func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return seen.underWay >= few
	})
	close(seen.let)
	listing.Wait()
	if seen.most > few {
		t.Errorf("%d counters of a page were read at once, want %d at most", seen.most, few)
	}
}
