package snowflake_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

func TestIDsCarryTimeWorkerAndSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layout := snowflake.MustLayout(snowflake.DatacenterLayout)
		d := granted(7, time.Minute)
		d.lease.Worker, d.lease.Datacenter = 9, 30
		epoch := time.Now().Add(-time.Hour)
		g := generator(t, d, like{Layout: layout, Epoch: epoch})
		for i := range int64(3) {
			got := layout.Decode(next(t, g), epoch)
			if want := (snowflake.Parts{Time: time.Now().UTC(), Datacenter: 30, Worker: 9, Sequence: i}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		time.Sleep(1500 * time.Microsecond)
		if got := layout.Decode(next(t, g), epoch); !got.Time.Equal(time.Now().Truncate(time.Millisecond)) || got.Sequence != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestTimeIsTheLeasesAndNotTheMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Minute)
		there := time.Now().Add(3 * time.Hour) // the server's clock is far from this machine's
		d.lease.Time, d.lease.NotBefore, d.lease.NotAfter = there, there, there.Add(time.Minute)
		g := generator(t, d, like{})
		time.Sleep(10 * time.Second)
		if got := parts(next(t, g)).Time; !got.Equal(there.Add(10 * time.Second)) {
			t.Errorf("stamped %v, want 10 s after %v", got, there)
		}
	})
}

func TestFullSequenceRunsAheadByTheLeadAndThenWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(t, granted(1, time.Minute), like{})
		start := time.Now()
		var ids []snowflake.ID
		for len(ids) < 100*4096 {
			id := next(t, g)
			ids = append(ids, id)
			if lead := time.Until(parts(id).Time); lead > snowflake.MaxLead {
				t.Fatalf("id %d is %v ahead of the clock", len(ids), lead)
			}
		}
		wantRising(t, ids)
		// 100 ms of ids, of which six were there at once: the unit that the clock was in, and five
		// of lead.
		expect.Equal(t, "how long 100 ms of ids took", time.Since(start), 94*time.Millisecond)
		expect.Equal(t, "how far the last id is above the first, without holes", ids[len(ids)-1]-ids[0], 99<<22|4095)
	})
}

func TestFillIsHeldByTheSameLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(t, granted(1, time.Minute), like{})
		start, all := time.Now(), []snowflake.ID(nil)
		for range 41 {
			ids := nextN(t, g, 10_000)
			all = append(all, ids...)
			if lead := time.Until(parts(ids[len(ids)-1]).Time); lead > snowflake.MaxLead {
				t.Fatalf("%v ahead of the clock", lead)
			}
		}
		wantRising(t, all)
		if took := time.Since(start); took < 94*time.Millisecond || took > 97*time.Millisecond {
			t.Errorf("100 ms of ids took %v", took)
		}
	})
}

func TestContextEndsTheWaitForATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(t, granted(1, time.Hour), like{Layout: snowflake.MustLayout("31/10/2@s")})
		nextN(t, g, 4)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errEnough)
		defer cancel()
		start := time.Now()
		_, err := g.Next(ctx)
		expect.Error(t, "Next, given up after 300 ms", err, errEnough)
		expect.Equal(t, "how long it waited", time.Since(start), 300*time.Millisecond)
		nextN(t, g, 4)
		if took := time.Since(start); took < 990*time.Millisecond || took > 2*time.Second {
			t.Errorf("the next second's ids came after %v", took)
		}
	})
}

// Callers that come with a dead context while the sequence is full must not use up the time of
// those that wait.
func TestCallersThatGiveUpDoNotPushTimeAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(t, granted(1, time.Hour), like{})
		last := nextN(t, g, 6*4096)[6*4096-1] // all that is there at once
		for range 100_000 {
			if id, err := g.Next(ended()); !errors.Is(err, errEnough) {
				t.Fatalf("Next with a context that has ended: got %v and error %v, want %v", id, err, errEnough)
			}
		}
		start := time.Now()
		if id := next(t, g); id <= last || time.Since(start) > 2*time.Millisecond {
			t.Errorf("Next: got %+v after %v, want an id after %+v within two units", parts(id), time.Since(start), parts(last))
		}
	})
}

func TestUsedUntilIsOfTheCurrentGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		g := generator(t, d, like{})
		if got := g.UsedUntil(); !got.IsZero() {
			t.Errorf("used until %v before the first id", got)
		}
		next(t, g)
		stamped := time.Now()
		time.Sleep(time.Minute)
		if got := g.UsedUntil(); !got.Equal(stamped.Add(time.Millisecond)) {
			t.Errorf("used until %v, want a millisecond after %v", got, stamped)
		}
		last := parts(nextN(t, g, 20_000)[19_999]).Time
		time.Sleep(time.Minute) // calls have become rare
		if got := g.UsedUntil(); !got.Equal(last.Add(time.Millisecond)) {
			t.Errorf("used until %v, want a millisecond after %v", got, last)
		}
		d.set(func(l *snowflake.Lease) { l.Fence, l.Worker, l.NotBefore = 2, 2, l.NotBefore.Add(time.Hour) })
		if _, err := g.Next(ended()); !errors.Is(err, errEnough) {
			t.Errorf("Next with a context that has ended: got error %v, want %v", err, errEnough)
		}
		if got := g.Stop(); !got.IsZero() {
			t.Errorf("the new grant was used until %v", got)
		}
	})
}

func TestStopIsFinalAndReportsWhatWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(t, granted(1, time.Hour), like{Layout: snowflake.MustLayout("31/10/2@s")})
		nextN(t, g, 4)
		waiting := make(chan error)
		go func() {
			_, err := g.Next(context.Background())
			waiting <- err
		}()
		synctest.Wait()
		want := time.Now().Add(time.Second)
		if got := g.Stop(); !got.Equal(want) {
			t.Errorf("used until %v, want %v", got, want)
		}
		if err := <-waiting; !errors.Is(err, snowflake.ErrStopped) {
			t.Errorf("who waited got %v", err)
		}
		wantError(t, g, snowflake.ErrStopped)
		for range 10 {
			wantError(t, g, snowflake.ErrStopped)
		}
		if got := g.Stop(); !got.Equal(want) || !g.UsedUntil().Equal(want) {
			t.Errorf("then %v and %v", got, g.UsedUntil())
		}
	})
}

// A renewal with a slower clock must not take ids back, and time goes on when that clock has caught
// up.
func TestClockThatIsBehindStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		g := generator(t, d, like{})
		time.Sleep(time.Minute)
		ids := []snowflake.ID{next(t, g)}
		d.set(func(l *snowflake.Lease) { l.Time, l.At = time.Now().Add(-time.Second), time.Now() })
		start := time.Now()
		ids = append(ids, nextN(t, g, 3)...)
		if took := time.Since(start); took != 0 || parts(ids[3]).Time.After(start) {
			t.Errorf("stamped %v after %v", parts(ids[3]).Time, took)
		}
		time.Sleep(2 * time.Second)
		ids = append(ids, next(t, g))
		if got := parts(ids[4]).Time; !got.Equal(time.Now().Add(-time.Second)) {
			t.Errorf("stamped %v, want a second before %v", got, time.Now())
		}
		// and one that is ahead again
		d.set(func(l *snowflake.Lease) { l.Time, l.At = time.Now(), time.Now() })
		ids = append(ids, next(t, g))
		if got := parts(ids[5]).Time; !got.Equal(time.Now()) {
			t.Errorf("stamped %v, want %v", got, time.Now())
		}
		wantRising(t, ids)
	})
}

func TestLayoutsAndEpochsThatCannotStamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		g := generator(t, d, like{Epoch: time.Now().Add(time.Second)})
		wantError(t, g, snowflake.ErrBeforeEpoch)

		layout := snowflake.MustLayout("20/10/12") // 2^20 ms
		g = generator(t, d, like{Layout: layout, Epoch: time.Now().Add(-(1<<20 - 2) * time.Millisecond)})
		ids := nextN(t, g, 2*4096)
		expect.Equal(t, "the last unit", ids[len(ids)-1]>>22, 1<<20-1)
		wantError(t, g, snowflake.ErrLayoutUsedUp)

		d.set(func(l *snowflake.Lease) { l.Worker = 1024 })
		wantError(t, generator(t, d, like{}), snowflake.ErrMisfit)
		d.set(func(l *snowflake.Lease) { l.Worker, l.Datacenter = 0, 1 })
		wantError(t, generator(t, d, like{}), snowflake.ErrMisfit)
	})
	for _, layout := range []snowflake.Layout{
		{Timestamp: 41, Worker: 10, Sequence: 12}, {Timestamp: 41, Worker: 10, Sequence: -1, Unit: time.Second},
		{Timestamp: 41, Worker: 10, Sequence: 13, Unit: time.Millisecond}, {Timestamp: 41, Worker: 10, Sequence: 12, Unit: time.Minute},
		{Timestamp: 1 << 62, Worker: 1 << 62, Sequence: 12, Unit: time.Second},
	} {
		wantError(t, generator(t, granted(1, time.Hour), like{Layout: layout}), snowflake.ErrMisfit)
		if _, err := snowflake.Static(layout, epoch, 0, 0); !errors.Is(err, snowflake.ErrMisfit) {
			t.Errorf("Static in layout %+v: got %v, want %v", layout, err, snowflake.ErrMisfit)
		}
	}
	if _, err := snowflake.New(nil, snowflake.Config{}); err == nil {
		t.Error("no worker was taken")
	}
}

func TestSpreadStartsUnitsAnywhereInTheLowerHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, spread := range []bool{false, true} {
			g := generator(t, granted(1, time.Hour), like{Spread: spread})
			shards, all := map[int64]int{}, []snowflake.ID(nil)
			for range 2000 {
				time.Sleep(time.Millisecond)
				id := next(t, g)
				if got := parts(id).Sequence; got >= 2048 {
					t.Fatalf("starts at %d", got)
				}
				shards[int64(id)%8]++
				all = append(all, id)
			}
			wantRising(t, all)
			if spread != (len(shards) == 8) || !spread && len(shards) != 1 {
				t.Errorf("spread %v: ids by shard: %v", spread, shards)
			}
			if start := time.Now(); len(nextN(t, g, 3*4096)) > 0 && time.Since(start) != 0 {
				t.Errorf("spread %v: a burst had to wait for %v", spread, time.Since(start))
			}
		}
	})
}

func TestRareCallsAreTimedExactlyAndNothingRunsBesideThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, 24*time.Hour)
		g := generator(t, d, like{})
		nextN(t, g, 30_000) // busy, so that something runs
		time.Sleep(time.Second)
		asked := d.count()
		time.Sleep(time.Hour)
		expect.Equal(t, "how often an idle generator has asked", d.count(), asked)
		for range 1000 {
			time.Sleep(7 * time.Millisecond)
			if got := parts(next(t, g)).Time; !got.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Fatalf("stamped %v at %v", got, time.Now())
			}
		}
	})
}

func TestWorkerIsAskedAFewThousandTimesASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		g := generator(t, d, like{})
		for start := time.Now(); time.Since(start) < time.Second; {
			nextN(t, g, 1000)
		}
		d.fail(errEnough)
		for start := time.Now(); time.Since(start) < time.Second; time.Sleep(100 * time.Microsecond) {
			_, _ = g.Next(t.Context())
		}
		if got := d.count(); got > 8100 {
			t.Errorf("asked %d times in two seconds", got)
		}
	})
}

func TestAllYieldsIDsUntilTheConsumerOrAnErrorEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := generator(t, granted(1, time.Hour), like{})
		var ids []snowflake.ID
		for id, err := range g.All(t.Context()) {
			if err != nil {
				if !errors.Is(err, snowflake.ErrStopped) || len(ids) != 10 {
					t.Errorf("%v after %d ids", err, len(ids))
				}
				ids = append(ids, 0)
				continue
			}
			if ids = append(ids, id); len(ids) == 10 {
				g.Stop()
			}
		}
		expect.Equal(t, "the number of ids", len(ids), 11)
		wantRising(t, slices.Clone(ids[:10]))
	})
}

func TestNextNOfNothingAndLess(t *testing.T) {
	g := generator(t, granted(1, time.Hour), like{})
	ids, err := g.NextN(t.Context(), 0)
	expect.Error(t, "NextN 0", err, nil)
	expect.Equal(t, "NextN 0: the number of ids", len(ids), 0)
	_, err = g.NextN(t.Context(), -1)
	expect.Error(t, "NextN -1", err, snowflake.ErrRange)
}

// The lease defines the form of the ids: two generators with worker ids of one pool cannot have two
// layouts. When the pool is another than before, the generator stamps nothing.
func TestLayoutAndEpochAreTheLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		narrow, later := snowflake.MustLayout("41/5/7"), epoch.Add(time.Hour)
		d := granted(1, time.Hour)
		d.set(func(l *snowflake.Lease) { l.Layout, l.Epoch = narrow, later })
		g, err := snowflake.New(d, snowflake.Config{})
		expect.NoError(t, "snowflake.New", err)
		defer g.Stop()
		if layout, _, ok := g.Layout(); ok {
			t.Errorf("Layout before the first id: got %v, want none", layout)
		}
		id := next(t, g)
		expect.Equal(t, "the first id", narrow.Decode(id, later), snowflake.Parts{Time: time.Now().UTC(), Worker: 1})
		layout, counted, ok := g.Layout()
		expect.Equal(t, "Layout after it: is known", ok, true)
		expect.Equal(t, "Layout after it", layout, narrow)
		expect.Equal(t, "the epoch", counted, later)
		for asked, change := range map[string]func(*snowflake.Lease){
			"another layout": func(l *snowflake.Lease) { l.Layout = twitter },
			"another epoch":  func(l *snowflake.Lease) { l.Epoch = epoch },
			"no layout":      func(l *snowflake.Lease) { l.Layout = snowflake.Layout{} },
		} {
			d.set(func(l *snowflake.Lease) { l.Fence++; change(l) })
			time.Sleep(time.Second)
			_, err := g.Next(t.Context())
			expect.Error(t, "Next with a lease of "+asked, err, snowflake.ErrReshaped)
			d.set(func(l *snowflake.Lease) { l.Layout, l.Epoch = narrow, later })
			time.Sleep(time.Second)
			next(t, g)
		}
	})
}

func TestStaticWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		worker, err := snowflake.Static(twitter, epoch, 0, 1023)
		expect.NoError(t, "snowflake.Static", err)
		g := generator(t, worker, like{})
		time.Sleep(365 * 24 * time.Hour)
		got := parts(next(t, g))
		expect.Equal(t, "the worker after a year", got.Worker, 1023)
		expect.Equal(t, "the time after a year", got.Time.UTC(), time.Now().UTC())
		for _, row := range [][2]int{{0, 1024}, {0, -1}, {1, 0}, {-1, 0}} {
			if _, err := snowflake.Static(twitter, epoch, row[0], row[1]); !errors.Is(err, snowflake.ErrMisfit) {
				t.Errorf("datacenter %d, worker %d: %v", row[0], row[1], err)
			}
		}
	})
}
