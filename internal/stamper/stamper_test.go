package stamper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/stamper"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestDefaultPoolIsLeasedFromTheStartUnderItsIdentity(t *testing.T) {
	bubble(t, stamper.Config{Default: "main", Identity: "host-1"}, trust, func(t *testing.T, b bench) {
		synctest.Wait()
		if slot := b.slot(t, "main"); slot.State != workerlease.Held || slot.Identity != "host-1" {
			t.Errorf("%+v", slot)
		}
		status := b.Status()
		if len(status) != 1 || !status[0].Held || status[0].Pool != "main" || status[0].WorkerID != 0 || !status[0].NotAfter.After(time.Now()) || status[0].Err != nil {
			t.Errorf("%+v", status)
		}
		if _, ok := b.Origin("main"); ok {
			t.Error("nothing was stamped, and a layout is told")
		}
		ids, origin := b.take(t, "main", 5000)
		if origin.WorkerID != 0 || origin.Layout.String() != snowflake.DefaultLayout || !origin.Epoch.Equal(snowflake.DefaultEpoch) {
			t.Errorf("%+v", origin)
		}
		if again, _ := b.take(t, "main", 1); again[0] <= ids[len(ids)-1] {
			t.Errorf("%d came behind %d", again[0], ids[len(ids)-1])
		}
		if known, ok := b.Origin("main"); !ok || known.Layout != origin.Layout || !known.Epoch.Equal(origin.Epoch) {
			t.Errorf("%+v %v", known, ok)
		}
	})
}

func TestOtherPoolsAreLeasedAtTheirFirstUse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		b := on(t, store, stamper.Config{}, trust)
		if status := b.Status(); len(status) != 0 {
			t.Errorf("without a default pool: %+v", status)
		}
		if err := b.pools.Create(t.Context(), "shaped", shape(t, "41/5/5/7"), time.Minute); err != nil {
			t.Fatal(err)
		}
		_, origin := b.take(t, "shaped", 10)
		if origin.Layout.String() != "41/5/5/7" {
			t.Errorf("%+v", origin)
		}
		b.take(t, "plain", 10)
		status := b.Status()
		if len(status) != 2 || status[0].Pool != "plain" || status[1].Pool != "shaped" || !status[0].Held || !status[1].Held {
			t.Errorf("%+v", status)
		}
	})
}

func TestManyAtOnceGetNoIDTwice(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		b := on(t, store, stamper.Config{Default: "p"}, trust)
		other := on(t, store, stamper.Config{Default: "p"}, trust) // another server
		var mu sync.Mutex
		var wg sync.WaitGroup
		seen := map[snowflake.ID]bool{}
		for i := range 16 {
			wg.Go(func() {
				from := []bench{b, other}[i%2]
				for n := range 40 {
					ids := make([]snowflake.ID, 1+n*7)
					if _, err := from.Stamp(t.Context(), "p", ids); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, id := range ids {
						if seen[id] {
							t.Errorf("%d twice", id)
						}
						seen[id] = true
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	})
}

func TestPoolThatNobodyUsesIsGivenBackAndTheDefaultIsNot(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		b.take(t, "main", 1)
		b.take(t, "used", 1)
		b.take(t, "idle", 1)
		for range 4 {
			time.Sleep(4 * time.Minute)
			b.take(t, "used", 1)
		}
		for pool, want := range map[string]workerlease.SlotState{"main": workerlease.Held, "used": workerlease.Held, "idle": workerlease.Free} {
			if slot := b.slot(t, pool); slot.State != want {
				t.Errorf("%s: %+v, want it %s", pool, slot, want)
			}
		}
		if len(b.Status()) != 2 {
			t.Errorf("%+v", b.Status())
		}
		time.Sleep(12 * time.Minute)
		if slot := b.slot(t, "used"); slot.State != workerlease.Free {
			t.Errorf("%+v", slot)
		}
		b.take(t, "idle", 1) // and it is leased again
		time.Sleep(12 * time.Minute)
		if slot := b.slot(t, "idle"); slot.State != workerlease.Free {
			t.Errorf("%+v", slot)
		}
	})
}

func TestReleaseShortensTheWindowToTheLastStamp(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		ids, origin := b.take(t, "main", 1)
		stamped := origin.Layout.Decode(ids[0], origin.Epoch).Time
		b.Close(t.Context())
		slot := b.slot(t, "main")
		if slot.State != workerlease.Free || !slot.NotAfter.After(stamped) || slot.NotAfter.Sub(stamped) > snowflake.MaxLead+time.Millisecond {
			t.Errorf("stamped %v, released until %v", stamped, slot.NotAfter)
		}
	})
}

func TestPoolInUseIsNotGivenBackHoweverLongItTakes(t *testing.T) {
	bubble(t, stamper.Config{Idle: time.Second}, trust, func(t *testing.T, b bench) {
		b.create(t, "slow", "41/10/0") // an id a millisecond
		b.take(t, "slow", 1)
		ids := make([]snowflake.ID, 60_000)
		if _, err := b.Stamp(t.Context(), "slow", ids); err != nil {
			t.Fatal(err)
		}
		if lasted := int64(ids[len(ids)-1]-ids[0]) >> 10; lasted < 59_000 {
			t.Errorf("60,000 ids in %d ms", lasted)
		}
		if slot := b.slot(t, "slow"); slot.State != workerlease.Held {
			t.Errorf("%+v", slot)
		}
	})
}

func TestSixtyFourPoolsAtOnceAreServedAndNoMore(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		for i := range 63 {
			b.take(t, fmt.Sprint("p", i), 1)
		}
		tooMany, ok := errors.AsType[*stamper.TooMany](b.refusal(t, "p63"))
		if !ok || tooMany.Max != 64 || tooMany.Wait != 10*time.Minute {
			t.Fatalf("%v", tooMany)
		}
		if names, err := b.pools.Names(t.Context(), "", "", 100); err != nil || len(names) != 64 {
			t.Errorf("%d pools %v", len(names), err)
		}
	})
}

func TestTooManyPoolsAreRefusedUntilOneIsGivenBack(t *testing.T) {
	bubble(t, stamper.Config{Default: "main", Max: 3}, trust, func(t *testing.T, b bench) {
		b.take(t, "p0", 1)
		b.take(t, "p1", 1)
		time.Sleep(4 * time.Minute)
		b.take(t, "p0", 1)
		err := b.refusal(t, "p2")
		tooMany, ok := errors.AsType[*stamper.TooMany](err)
		if !ok || !errors.Is(err, stamper.ErrTooMany) || tooMany.Max != 3 || tooMany.Wait != 6*time.Minute {
			t.Fatalf("%v", err)
		}
		b.take(t, "p0", 1) // those that are there go on
		time.Sleep(tooMany.Wait + time.Minute)
		b.take(t, "p2", 1)
	})
}

// askedAgain is after how long at most a holder asks again.
const askedAgain = 8 * time.Second

func TestQuarantineIsToldWithWhatIsLeftOfIt(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, workerlease.Config{}, func(t *testing.T, b bench) {
		last := time.Hour
		for range 6 {
			err := b.refusal(t, "main")
			quarantined, ok := errors.AsType[*workerlease.Quarantined](err)
			if !ok || quarantined.Wait >= last || quarantined.Wait > workerlease.DefaultTTL+workerlease.DefaultSkew || quarantined.Wait <= 0 {
				t.Fatalf("%v, after %v", err, last)
			}
			if status := b.Status()[0]; status.Held || !errors.Is(status.Err, workerlease.ErrQuarantined) {
				t.Errorf("%+v", status)
			}
			last = quarantined.Wait
			time.Sleep(5 * time.Second)
		}
		time.Sleep(2*time.Second + askedAgain)
		b.take(t, "main", 1)
	})
}

func TestExhaustedPoolIsToldWithTheWaitAndTakenWhenASlotIsFree(t *testing.T) {
	bubble(t, stamper.Config{}, trust, func(t *testing.T, b bench) {
		b.create(t, "full", "41/1/12")
		for range 2 {
			if _, err := b.pools.Acquire(t.Context(), "full", workerlease.Request{Shape: shape(t, "41/1/12")}); err != nil {
				t.Fatal(err)
			}
		}
		exhausted, ok := errors.AsType[*workerlease.Exhausted](b.refusal(t, "full"))
		if !ok || exhausted.Wait != workerlease.DefaultTTL {
			t.Fatalf("%+v", exhausted)
		}
		time.Sleep(exhausted.Wait + askedAgain)
		b.take(t, "full", 1)
	})
}

func TestFirstUseWaitsNoLongerThanItsRequest(t *testing.T) {
	bubble(t, stamper.Config{}, trust, func(t *testing.T, b bench) {
		b.create(t, "slow", "32/10/0@s") // an id a second
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := b.Stamp(ctx, "slow", make([]snowflake.ID, 100))
		if unavailable, ok := errors.AsType[*stamper.Unavailable](err); !ok || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v %+v", err, unavailable)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Stamp(ended, "never used", make([]snowflake.ID, 1)); !errors.Is(err, stamper.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

func TestCloseGivesEverythingBackAlsoWhenItsContextHasEndedAndStampsNothingAfter(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		for _, pool := range []string{"main", "a", "b"} {
			b.take(t, pool, 10)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			b.Close(ended)
			for _, pool := range []string{"main", "a", "b"} {
				if slot := b.slot(t, pool); slot.State != workerlease.Free {
					t.Errorf("%s: %+v", pool, slot)
				}
				b.wantUnavailable(t, pool, "stopping")
			}
		}
		if len(b.Status()) != 0 {
			t.Errorf("%+v", b.Status())
		}
	})
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	bubble(t, stamper.Config{}, trust, func(t *testing.T, b bench) {
		b.create(t, "slow", "32/10/0@s")
		b.take(t, "slow", 1)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := b.Stamp(t.Context(), "slow", make([]snowflake.ID, 1000)); !errors.Is(err, stamper.ErrUnavailable) {
					t.Errorf("%v", err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		b.Close(t.Context())
		wg.Wait()
	})
}
