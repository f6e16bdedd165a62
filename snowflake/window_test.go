package snowflake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

func TestSecondsNeedAWholeSecondOfTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout := snowflake.MustLayout("31/10/12@s")
		time.Sleep(300 * time.Millisecond) // the window is from x.3 to x+3.3
		start := time.Now()
		d := granted(1, 3*time.Second)
		g := generator(t, d, like{Layout: layout})
		id := next(t, g)
		expect.Equal(t, "how long it waited for the first whole second", time.Since(start), 700*time.Millisecond)
		if got := layout.Decode(id, epoch).Time; !got.Equal(time.Now()) {
			t.Errorf("stamped %v", got)
		}
		time.Sleep(1999 * time.Millisecond)
		next(t, g)
		time.Sleep(time.Millisecond) // x+3.0: that second does not end in the window
		wantError(t, g, snowflake.ErrWindowEnded)
		if got := g.UsedUntil(); !got.Equal(time.Now()) || got.After(d.lease.NotAfter) {
			t.Errorf("used until %v", got)
		}
	})
}

func TestWindowThatBeginsLaterIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		d.lease.NotBefore = d.lease.NotBefore.Add(10*time.Second + time.Microsecond)
		g := generator(t, d, like{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.Next(ctx)
		expect.Error(t, "Next, given up after a second", err, context.DeadlineExceeded)
		if got := g.UsedUntil(); !got.IsZero() {
			t.Errorf("used until %v", got)
		}
		if got := parts(next(t, g)).Time; got.Before(d.lease.NotBefore) || time.Now().Before(d.lease.NotBefore) {
			t.Errorf("stamped %v at %v, in a window from %v", got, time.Now(), d.lease.NotBefore)
		}
	})
}

func TestWindowsEndRefusesAndRenewalGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, 10*time.Second)
		g := generator(t, d, like{})
		before := nextN(t, g, 3)
		time.Sleep(10*time.Second - time.Millisecond)
		before = append(before, next(t, g))
		time.Sleep(time.Millisecond)
		wantError(t, g, snowflake.ErrWindowEnded)
		var ended *snowflake.WindowEndedError
		if _, err := g.Next(t.Context()); !errors.As(err, &ended) || !ended.End.Equal(d.lease.NotAfter) {
			t.Errorf("got %v", err)
		}
		if got := g.UsedUntil(); !got.Equal(d.lease.NotAfter) {
			t.Errorf("used until %v, want %v", got, d.lease.NotAfter)
		}
		d.set(func(l *snowflake.Lease) { l.NotAfter = time.Now().Add(10 * time.Second) })
		time.Sleep(time.Millisecond)
		wantRising(t, append(before, next(t, g)))
	})
}

// However fast ids are drawn, with however much lead, none is stamped beyond the window.
func TestBusyGeneratorStopsAtTheWindowsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, 20*time.Millisecond)
		g := generator(t, d, like{})
		var ids []snowflake.ID
		for {
			id, err := g.Next(t.Context())
			if err != nil {
				if !errors.Is(err, snowflake.ErrWindowEnded) || time.Now().Before(d.lease.NotAfter) {
					t.Errorf("%v at %v", err, time.Now())
				}
				break
			}
			ids = append(ids, id)
		}
		if last := parts(ids[len(ids)-1]); !last.Time.Equal(d.lease.NotAfter.Add(-time.Millisecond)) || len(ids) != 20*4096 {
			t.Errorf("%d ids, the last %+v; the window ends at %v", len(ids), last, d.lease.NotAfter)
		}
		wantRising(t, ids)
	})
}

func TestNoLeaseIsReportedWithTheWorkersReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		g := generator(t, d, like{})
		before := nextN(t, g, 100) // busy
		suspended := errors.New("the machine was suspended")
		d.fail(suspended)
		time.Sleep(2 * time.Millisecond)
		wantError(t, g, snowflake.ErrNoLease)
		wantError(t, g, suspended)
		// The same grant comes back.
		d.set(func(*snowflake.Lease) {})
		time.Sleep(time.Millisecond)
		wantRising(t, append(before, nextN(t, g, 100)...))
	})
}

func TestNewGrantMeansAnotherWorkerAndALaterUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		d.lease.Worker = 900
		g := generator(t, d, like{})
		var all []snowflake.ID
		for i := range 20 { // grants change, and change back, while ids are many
			ids := nextN(t, g, 500)
			for _, id := range ids {
				if got := parts(id).Worker; got != 900-i%2*899 {
					t.Fatalf("grant %d: got %+v, want worker %d", i, parts(id), 900-i%2*899)
				}
			}
			all = append(all, ids...)
			d.set(func(l *snowflake.Lease) { l.Fence, l.Worker = 3-l.Fence, 901-l.Worker })
			time.Sleep(2 * time.Millisecond) // a busy generator asks once in one
		}
		wantRising(t, all)
	})
}

func TestIDsRiseThoughTheNextGrantHasASmallerWorkerID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		d.lease.Worker = 900
		g := generator(t, d, like{})
		ids := []snowflake.ID{next(t, g)}
		d.set(func(l *snowflake.Lease) { l.Fence, l.Worker = 2, 1 })
		ids = append(ids, next(t, g)) // in the same millisecond
		expect.Equal(t, "worker of the second id", parts(ids[1]).Worker, 1)
		wantRising(t, ids)
	})
}
