package workerlease_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/workerlease"
)

// A window of less than three seconds holds no whole second at some moments, in which no id of such
// a layout can be stamped: no pool begins so, also where the settings allow no longer one.
func TestNoPoolOfSecondsBeginsWithATTLThatHoldsNone(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		seconds := of(2)
		seconds.Shape.Layout, seconds.TTL = "32/10/21@s", 0
		for _, config := range []workerlease.Config{{LongestTTL: 2 * time.Second}, {NewPools: workerlease.NewPoolsTrust, LongestTTL: 2999 * time.Millisecond}} {
			p := workerlease.New(store, config)
			_, err := p.Acquire(t.Context(), "slow", seconds)
			expect.Error(t, "Acquire without a ttl", err, workerlease.ErrInvalid)
			expect.Contains(t, "Acquire without a ttl", err.Error(), "3s", "longest")
			expect.Error(t, "Create without a ttl", p.Create(t.Context(), "slow", seconds.Shape, 0), workerlease.ErrInvalid)
		}
		enough := workerlease.New(store, workerlease.Config{LongestTTL: 3 * time.Second})
		expect.MustEqual(t, "error of Create with room for seconds", enough.Create(t.Context(), "slow", seconds.Shape, 0), nil)
		lease, err := enough.Acquire(t.Context(), "slow", seconds)
		expect.MustEqual(t, "error of Acquire with room for seconds", err, nil)
		expect.Equal(t, "TTL of the lease", lease.TTL, 3*time.Second)
	})
}
