package stamper

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
			t.Fatal(err)
		}
		test(t, s.desks["p"])
	})
}

// A generator asks for its lease while the holder may already have one of a pool with another layout.
func TestGeneratorGetsNoLeaseOfAnotherLayoutOrEpoch(t *testing.T) {
	inside(t, func(t *testing.T, d *desk) {
		lease, err := d.holder.Current()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := (shaped{d.holder, lease}).Lease(); err != nil {
			t.Errorf("its own: %v", err)
		}
		layout, epoch := lease, lease
		layout.Layout = "41/5/5/12"
		epoch.Epoch = epoch.Epoch.Add(time.Millisecond)
		for _, like := range []workerlease.Lease{layout, epoch} {
			if got, err := (shaped{d.holder, like}).Lease(); !errors.Is(err, errReshaped) || got != (snowflake.Lease{}) {
				t.Errorf("%+v %v", got, err)
			}
		}
	})
}

func TestDeskThatIsGivenBackMakesNoGeneratorAnyMore(t *testing.T) {
	inside(t, func(t *testing.T, d *desk) {
		d.giveBack(t.Context())
		if _, err := d.ready(); !errors.Is(err, snowflake.ErrStopped) {
			t.Errorf("%v", err)
		}
		if _, err := d.stamp(t.Context(), make([]snowflake.ID, 1)); err == nil || !strings.Contains(err.Error(), "stopping") {
			t.Errorf("%v", err)
		}
	})
}
