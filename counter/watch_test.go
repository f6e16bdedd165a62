package counter_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// trips counts round trips.
type trips struct {
	observe.None

	n atomic.Int64
}

func (o *trips) BatchEnded(observe.Batch) { o.n.Add(1) }

// A process that watches the slots of a cluster does not ask for one after the other: thousands of
// round trips would take longer than the hold-off within which it has to report.
func TestWatchAsksForManySlotsAtOnce(t *testing.T) {
	seen := &trips{}
	store := storetest.Open(t, redisstore.Config{URL: "embedded:", Observers: []observe.Observer{seen}})
	c := counter.New(store, counter.Config{})
	defer c.Close()
	markers := make([]string, 2000)
	for i := range markers {
		markers[i] = store.Key("counters", strconv.Itoa(i), "marker")
	}
	before := seen.n.Load()
	counter.Poll(t.Context(), c, markers)
	if n := seen.n.Load() - before; n > int64(len(markers))/2 {
		t.Errorf("%d slots were asked in %d round trips, want many in one", len(markers), n)
	}
}
