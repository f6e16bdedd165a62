package stamper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// inside runs a test at a desk that has stamped.
func inside(t *testing.T, test func(*testing.T, *desk)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(snowflake.DefaultEpoch.AddDate(6, 0, 0)))
		store := storetest.Open(t, redisstore.Config{})
		s := New(workerlease.New(store, workerlease.Config{NewPools: workerlease.Trust}), Config{Default: "p"})
		t.Cleanup(func() { s.Close(t.Context()) })
		if _, err := s.Stamp(t.Context(), "p", make([]snowflake.ID, 1)); err != nil {
			t.Fatalf("Stamp: %v", err)
		}
		test(t, s.desks["p"])
	})
}

// A generator asks for its lease while the holder may already have one of a pool with another layout.
func TestGeneratorGetsNoLeaseOfAnotherLayoutOrEpoch(t *testing.T) {
	inside(t, func(t *testing.T, d *desk) {
		lease, err := d.holder.Current()
		if err != nil {
			t.Fatalf("Current: %v", err)
		}
		_, err = (shaped{d.holder, lease}).Lease()
		expect.Error(t, "Lease of its own layout and epoch", err, nil)
		layout, epoch := lease, lease
		layout.Layout = "41/5/5/12"
		epoch.Epoch = epoch.Epoch.Add(time.Millisecond)
		for _, like := range []workerlease.Lease{layout, epoch} {
			got, err := (shaped{d.holder, like}).Lease()
			expect.Error(t, "Lease of another layout or epoch", err, errReshaped)
			expect.Equal(t, "Lease of another layout or epoch", got, snowflake.Lease{})
		}
	})
}

func TestDeskThatIsGivenBackMakesNoGeneratorAnyMore(t *testing.T) {
	inside(t, func(t *testing.T, d *desk) {
		d.giveBack(t.Context())
		_, err := d.ready()
		expect.Error(t, "ready", err, snowflake.ErrStopped)
		_, err = d.stamp(t.Context(), make([]snowflake.ID, 1))
		expect.Contains(t, "error of stamp", fmt.Sprint(err), "stopping")
	})
}
