package stamper

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// inside runs a test at a pool that has stamped.
func inside(t *testing.T, test func(*testing.T, *poolStamper)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(snowflake.DefaultEpoch.AddDate(6, 0, 0)))
		store := storetest.Open(t, redisstore.Config{})
		s := New(workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), Config{Default: "p"})
		t.Cleanup(func() { s.Close(t.Context()) })
		if _, err := s.Stamp(t.Context(), "p", make([]snowflake.ID, 1)); err != nil {
			t.Fatalf("Stamp: %v", err)
		}
		test(t, s.stampers["p"])
	})
}

func TestDeskThatIsGivenBackMakesNoGeneratorAnyMore(t *testing.T) {
	inside(t, func(t *testing.T, d *poolStamper) {
		d.giveBack(t.Context())
		_, err := d.ids.Generator()
		expect.Error(t, "Generator", err, snowflake.ErrStopped)
		_, err = d.stamp(t.Context(), make([]snowflake.ID, 1), (*snowflake.Generator).Fill)
		expect.Contains(t, "error of stamp", fmt.Sprint(err), "stopping")
	})
}
