package snowflake_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

// ring is a pool of four worker ids that grants windows which never overlap, and remembers them.
type ring struct {
	desk

	ends   [4]time.Time     // of each worker id's last window
	grants map[int64]window // by fence
	of     map[int][]int64  // fences by worker id
}

type window struct{ from, to time.Time }

func (r *ring) grant() {
	now := time.Now()
	r.set(func(l *snowflake.Lease) {
		l.Fence++
		l.Worker = rand.IntN(len(r.ends))
		l.NotBefore = now
		if end := r.ends[l.Worker]; end.After(now) {
			l.NotBefore = end
		}
		r.extend(l, now)
		r.of[l.Worker] = append(r.of[l.Worker], l.Fence)
	})
}

func (r *ring) renew() { r.set(func(l *snowflake.Lease) { r.extend(l, time.Now()) }) }

// extend lets a window end some milliseconds from now, and anchors the clock anew, up to 2 ms late.
func (r *ring) extend(l *snowflake.Lease, now time.Time) {
	l.At, l.Time = now, now.Add(-time.Duration(rand.IntN(2_000_000)))
	if end := now.Add(time.Duration(1+rand.IntN(20)) * time.Millisecond); end.After(l.NotAfter) || l.NotBefore.Equal(l.NotAfter) || end.After(r.ends[l.Worker]) {
		l.NotAfter = end
	}
	if l.NotAfter.Before(l.NotBefore) {
		l.NotAfter = l.NotBefore.Add(time.Millisecond)
	}
	r.ends[l.Worker] = l.NotAfter
	r.grants[l.Fence] = window{l.NotBefore, l.NotAfter}
}

// holds reports whether a stamp lies in a window that was granted for its worker id.
func (r *ring) holds(parts snowflake.Parts) bool {
	for _, fence := range r.of[parts.Worker] {
		w := r.grants[fence]
		if !parts.Time.Before(w.from) && !parts.Time.Add(time.Millisecond).After(w.to) {
			return true
		}
	}
	return false
}

// caller draws ids, one or many at a time, until the generator is stopped.
type caller struct {
	ids  []snowflake.ID
	late bool // it got an id in a call that began after Stop had returned
}

func (c *caller) run(t *testing.T, g *snowflake.Generator, calls, drawn *atomic.Int64, stopped *atomic.Bool) {
	for {
		after := stopped.Load()
		ctx := t.Context()
		if rand.IntN(50) == 0 {
			ctx = ended()
		}
		n := 1
		if rand.IntN(10) == 0 {
			n = rand.IntN(300)
		}
		got := make([]snowflake.ID, n)
		var err error
		if n == 1 {
			got[0], err = g.Next(ctx)
		} else {
			err = g.Fill(ctx, got)
		}
		calls.Add(1)
		switch {
		case err == nil:
			c.ids = append(c.ids, got...)
			drawn.Add(int64(n))
			c.late = c.late || after
		case errors.Is(err, snowflake.ErrStopped):
			return
		default: // the reasons are many here; what counts is which ids there are
			runtime.Gosched()
		}
	}
}

func TestManyCallersOverRenewalsGrantsAndFaults(t *testing.T) {
	for _, spread := range []bool{false, true} {
		r := &ring{grants: map[int64]window{}, of: map[int][]int64{}}
		r.grant()
		g, err := snowflake.New(like{}.worker(r), snowflake.Config{Spread: spread})
		expect.NoError(t, "snowflake.New", err)
		var calls, drawn atomic.Int64
		var stopped atomic.Bool
		callers := make([]caller, 8)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { callers[i].run(t, g, &calls, &drawn, &stopped) })
		}
		// a busy machine draws few ids in a window
		for round := 0; round < 80 || drawn.Load() < 10_000; round++ {
			for goal := calls.Load() + int64(rand.IntN(200)); calls.Load() < goal; {
				runtime.Gosched()
				if rand.IntN(100) == 0 {
					r.renew() // or nothing could go on
				}
			}
			switch rand.IntN(4) {
			case 0:
				r.grant()
			case 1:
				r.fail(errEnough)
			default:
				r.renew()
			}
			g.UsedUntil()
		}
		usedUntil := g.Stop()
		stopped.Store(true)
		all.Wait()

		lastWorker, lastFence := r.lease.Worker, r.lease.Fence
		var ids []snowflake.ID
		for i, c := range callers {
			wantRising(t, c.ids)
			if c.late {
				t.Errorf("caller %d got an id after Stop", i)
			}
			ids = append(ids, c.ids...)
		}
		wantDistinct(t, ids)
		for _, id := range ids {
			p := parts(id)
			if !r.holds(p) {
				t.Fatalf("%d (%+v) lies in no window of its worker id", id, p)
			}
			if w := r.grants[lastFence]; p.Worker == lastWorker && !p.Time.Before(w.from) && !usedUntil.IsZero() && p.Time.Add(time.Millisecond).After(usedUntil) {
				t.Fatalf("%d (%+v) was stamped with the last grant, which was used until %v", id, p, usedUntil)
			}
		}
	}
}

// A generator that was stopped with ids ahead of the clock, and one that comes after it with the
// same worker id from where the first says.
func TestRestartDoesNotRepeatIDsThatRanAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := granted(1, time.Hour)
		first := generator(t, d, like{})
		ids := nextN(t, first, 6*4096)
		usedUntil := first.Stop()
		expect.Equal(t, "how far ahead it was used", time.Until(usedUntil), snowflake.MaxLead+time.Millisecond)
		d.set(func(l *snowflake.Lease) { l.Fence, l.NotBefore = 2, usedUntil })
		wantDistinct(t, append(ids, nextN(t, generator(t, d, like{}), 6*4096)...))
	})
}

// The stamp of one grant never goes with the worker id of another, though grants change in the
// middle of calls.
func TestGrantsThatChangeDuringCallsAreNotMixed(t *testing.T) {
	layout := snowflake.MustLayout("41/1/21")
	d := granted(1, time.Hour)
	g := generator(t, d, like{Layout: layout})
	var all sync.WaitGroup
	var calls atomic.Int64
	var done atomic.Bool
	seen := make([][]snowflake.ID, 4)
	for i := range seen {
		all.Go(func() {
			for !done.Load() {
				id, err := g.Next(t.Context())
				if err != nil {
					t.Errorf("Next: got error %v, want none", err)
					return
				}
				seen[i] = append(seen[i], id)
				if calls.Add(1); len(seen[i])%100 == 0 {
					runtime.Gosched() // or the goroutine that changes the grants has no turn
				}
			}
		})
	}
	for range 100 {
		for goal := calls.Load() + 1000; calls.Load() < goal && !t.Failed(); {
			runtime.Gosched()
		}
		d.set(func(l *snowflake.Lease) { l.Fence, l.Worker = l.Fence+1, 1-l.Worker })
	}
	done.Store(true)
	all.Wait()
	units := map[snowflake.ID]snowflake.ID{} // a unit belongs to one grant only
	for _, ids := range seen {
		wantRising(t, ids)
		for _, id := range ids {
			unit, worker := id>>22, id>>21&1
			if before, ok := units[unit]; ok && before != worker {
				t.Fatalf("unit %d has both worker ids", unit)
			}
			units[unit] = worker
		}
	}
}
