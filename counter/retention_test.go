package counter_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestRequestIDIsKeptForADayAndItsCounterForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.Open(t, redisstore.Config{})
		c := counters{counter.New(store, counter.Config{}), store}
		first := c.incr(t, "k", 1, "id")
		time.Sleep(24*time.Hour - time.Second)
		expect.Equal(t, "the request within the day", c.incr(t, "k", 1, "id"), first)
		time.Sleep(24*time.Hour + time.Second)
		expect.Equal(t, "the request a day after the last repeat", c.incr(t, "k", 1, "id").Last, first.Last+1)
		time.Sleep(10 * 365 * 24 * time.Hour)
		c.want(t, "k", 2)
	})
}

func TestClosedStoreIsARefusal(t *testing.T) {
	store, err := redisstore.Open(t.Context(), "embedded:")
	expect.NoError(t, "redisstore.Open embedded:", err)
	c := counter.New(store, counter.Config{})
	expect.NoError(t, "Close", store.Close())
	_, err = c.Add(t.Context(), "k", counter.Request{})
	wantRefused(t, err, redisstore.ErrUnavailable)
	_, err = c.Get(t.Context(), "k")
	wantRefused(t, err, redisstore.ErrUnavailable)
	if errors.Is(err, counter.ErrNotFound) {
		t.Error("a store that is away is not one without the counter")
	}
}
