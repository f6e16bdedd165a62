package stamper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

func TestDefaultPoolIsLeasedFromTheStartUnderItsIdentity(t *testing.T) {
	bubble(t, stamper.Config{Default: "main", Identity: "host-1"}, trust, func(t *testing.T, b bench) {
		synctest.Wait()
		b.wantSlot(t, "main", workerlease.SlotStateHeld)
		expect.Equal(t, "identity of worker id 0 of pool main", b.slot(t, "main").Identity, "host-1")
		b.wantStatus(t, "main")
		if status := b.Status()[0]; status.WorkerID != 0 || !status.NotAfter.After(time.Now()) || status.Err != nil {
			t.Errorf("Status: got %+v, want worker id 0 with a window that lasts, and no error", status)
		}
		if origin, ok := b.Origin("main"); ok {
			t.Errorf("Origin before anything was stamped: got %+v, want none", origin)
		}
		ids, origin := b.take(t, "main", 5000)
		if origin.WorkerID != 0 || origin.Layout.String() != snowflake.DefaultLayout || !origin.Epoch.Equal(snowflake.DefaultEpoch) {
			t.Errorf("origin of the ids: got %+v, want worker id 0, layout %s and epoch %v", origin, snowflake.DefaultLayout, snowflake.DefaultEpoch)
		}
		if again, _ := b.take(t, "main", 1); again[0] <= ids[len(ids)-1] {
			t.Errorf("id %d came after %d, want ids to rise", again[0], ids[len(ids)-1])
		}
		known, ok := b.Origin("main")
		expect.Equal(t, "Origin is known", ok, true)
		expect.Equal(t, "Origin: layout", known.Layout, origin.Layout)
		expect.Equal(t, "Origin: epoch", known.Epoch, origin.Epoch)
	})
}

func TestOtherPoolsAreLeasedAtTheirFirstUse(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		b := on(t, store, stamper.Config{}, trust)
		b.wantStatus(t)
		expect.NoError(t, "creating pool shaped", b.pools.Create(t.Context(), "shaped", shape(t, "41/5/5/7"), time.Minute))
		_, origin := b.take(t, "shaped", 10)
		expect.Equal(t, "layout of the ids", origin.Layout.String(), "41/5/5/7")
		b.take(t, "plain", 10)
		b.wantStatus(t, "plain", "shaped")
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
						t.Errorf("stamping %d ids: %v", len(ids), err)
						return
					}
					mu.Lock()
					for _, id := range ids {
						if seen[id] {
							t.Errorf("id %d was stamped twice", id)
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
		for pool, want := range map[string]workerlease.SlotState{"main": workerlease.SlotStateHeld, "used": workerlease.SlotStateHeld, "idle": workerlease.SlotStateFree} {
			b.wantSlot(t, pool, want)
		}
		b.wantStatus(t, "main", "used")
		time.Sleep(12 * time.Minute)
		b.wantSlot(t, "used", workerlease.SlotStateFree)
		b.take(t, "idle", 1) // and it is leased again
		time.Sleep(12 * time.Minute)
		b.wantSlot(t, "idle", workerlease.SlotStateFree)
	})
}

func TestReleaseShortensTheWindowToTheLastStamp(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		ids, origin := b.take(t, "main", 1)
		stamped := origin.Layout.Decode(ids[0], origin.Epoch).Time
		b.Close(t.Context())
		slot := b.slot(t, "main")
		if slot.State != workerlease.SlotStateFree || !slot.NotAfter.After(stamped) || slot.NotAfter.Sub(stamped) > snowflake.MaxLead+time.Millisecond {
			t.Errorf("the last id is of %v: got a slot that is %s until %v, want it free until up to %v after that id", stamped, slot.State, slot.NotAfter, snowflake.MaxLead)
		}
	})
}

func TestPoolInUseIsNotGivenBackHoweverLongItTakes(t *testing.T) {
	bubble(t, stamper.Config{Idle: time.Second}, trust, func(t *testing.T, b bench) {
		b.create(t, "slow", "41/10/0") // an id a millisecond
		b.take(t, "slow", 1)
		ids := make([]snowflake.ID, 60_000)
		if _, err := b.Stamp(t.Context(), "slow", ids); err != nil {
			t.Fatalf("stamping 60,000 ids: %v", err)
		}
		if lasted := int64(ids[len(ids)-1]-ids[0]) >> 10; lasted < 59_000 {
			t.Errorf("60,000 ids, one a millisecond, span %d ms, want 59,000 or more", lasted)
		}
		b.wantSlot(t, "slow", workerlease.SlotStateHeld)
	})
}

func TestSixtyFourPoolsAtOnceAreServedAndNoMore(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, trust, func(t *testing.T, b bench) {
		for i := range 63 {
			b.take(t, fmt.Sprint("p", i), 1)
		}
		wantTooMany(t, b.refusal(t, "p63"), "64 pools at most", time.Minute)
		names, _, err := b.pools.List(t.Context(), "", "", 100)
		expect.Error(t, "Names", err, nil)
		expect.Equal(t, "pools that exist", len(names), 64)
	})
}

func wantTooMany(t *testing.T, err error, text string, wait time.Duration) {
	t.Helper()
	expect.Error(t, "stamping of one pool too many", err, stamper.ErrTooMany)
	expect.MustEqual(t, "wait for room", redisstore.RetryAfter(err), wait)
	expect.Equal(t, "whether the error has: "+text, strings.Contains(err.Error(), text), true)
}

func TestTooManyPoolsAreRefusedUntilOneIsGivenBack(t *testing.T) {
	bubble(t, stamper.Config{Default: "main", Max: 3}, trust, func(t *testing.T, b bench) {
		b.take(t, "p0", 1)
		b.take(t, "p1", 1)
		time.Sleep(40 * time.Second)
		b.take(t, "p0", 1)
		err := b.refusal(t, "p2")
		wantTooMany(t, err, "3 pools at most", 20*time.Second)
		b.take(t, "p0", 1) // those that are there go on
		time.Sleep(20 * time.Second)
		b.take(t, "p2", 1)
		b.wantStatus(t, "main", "p0", "p2")
	})
}

// askedAgain is after how long at most a holder asks again.
const askedAgain = 8 * time.Second

func TestQuarantineIsToldWithWhatIsLeftOfIt(t *testing.T) {
	bubble(t, stamper.Config{Default: "main"}, workerlease.Config{}, func(t *testing.T, b bench) {
		last := time.Hour
		for range 6 {
			err := b.refusal(t, "main")
			wait := redisstore.RetryAfter(err)
			if !errors.Is(err, workerlease.ErrQuarantined) || wait >= last || wait > workerlease.DefaultTTL+time.Second || wait <= 0 {
				t.Fatalf("stamping in quarantine: got error %v, want ErrQuarantined with a wait under %v and up to a TTL and the skew", err, last)
			}
			status := b.Status()[0]
			expect.Equal(t, "Status: held", status.Held, false)
			expect.Error(t, "Status", status.Err, workerlease.ErrQuarantined)
			last = wait
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
				t.Fatalf("leasing a worker id of pool full: %v", err)
			}
		}
		err := b.refusal(t, "full")
		expect.Error(t, "stamping of a full pool", err, workerlease.ErrExhausted)
		expect.MustEqual(t, "wait for a full pool", redisstore.RetryAfter(err), workerlease.DefaultTTL)
		time.Sleep(workerlease.DefaultTTL + askedAgain)
		b.take(t, "full", 1)
	})
}

func TestFirstUseWaitsNoLongerThanItsRequest(t *testing.T) {
	bubble(t, stamper.Config{}, trust, func(t *testing.T, b bench) {
		b.create(t, "slow", "32/10/0@s") // an id a second
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		_, err := b.Stamp(ctx, "slow", make([]snowflake.ID, 100))
		if _, ok := errors.AsType[*stamper.UnavailableError](err); !ok || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stamping more than its request waits for: got error %v, want Unavailable, and not the context's", err)
		}
	})
}

func TestRequestThatHasEndedGetsNoIDWhetherALeaseIsHeldOrNot(t *testing.T) {
	bubble(t, stamper.Config{}, trust, func(t *testing.T, b bench) {
		b.take(t, "held", 1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, pool := range []string{"held", "never used"} {
			_, err := b.Stamp(ended, pool, make([]snowflake.ID, 1))
			expect.Error(t, "stamping of pool "+pool+" for a request that has ended", err, stamper.ErrUnavailable)
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
				b.wantSlot(t, pool, workerlease.SlotStateFree)
				b.wantUnavailable(t, pool, "stopping")
			}
		}
		b.wantStatus(t)
	})
}

func TestCloseEndsCallsUnderWay(t *testing.T) {
	bubble(t, stamper.Config{}, trust, func(t *testing.T, b bench) {
		b.create(t, "slow", "32/10/0@s")
		b.take(t, "slow", 1)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := b.Stamp(t.Context(), "slow", make([]snowflake.ID, 1000))
				expect.Error(t, "stamping while Close is called", err, stamper.ErrUnavailable)
			})
		}
		time.Sleep(10 * time.Second)
		b.Close(t.Context())
		wg.Wait()
	})
}
