package holder_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// reading is what a lease's clock says now.
func reading(lease snowflake.Lease) time.Time { return lease.Time.Add(time.Since(lease.At)) }

// However wrong the client's clock is and however long messages take: the lease's clock is that of
// the server, late by no more than a reply takes.
func TestClockIsNeverAheadOfTheServers(t *testing.T) {
	for _, ahead := range []time.Duration{0, time.Millisecond, 10 * time.Minute, -10 * time.Minute, 24 * 365 * time.Hour} {
		for _, way := range [][2]time.Duration{{0, 0}, {3 * time.Second, 0}, {0, 3 * time.Second}, {3 * time.Second, 3 * time.Second}} {
			t.Run(fmt.Sprint(ahead, way), func(t *testing.T) {
				bubble(t, func(t *testing.T, g *granter, d *diary) {
					g.ahead, g.out, g.back = ahead, way[0], way[1]
					h := hold(t, g, d, holder.Options{})
					for range 500 {
						time.Sleep(333 * time.Millisecond)
						late := time.Now().Add(ahead).Round(0).Sub(reading(must(h.Lease())))
						if late < 0 || late > g.back+time.Millisecond {
							t.Fatalf("the clock is late by %v, want 0 to %v", late, g.back+time.Millisecond)
						}
					}
				})
			})
		}
	}
}

// The clock that a slow reply has set late is set right by a faster one, and a slower one changes
// nothing.
func TestClockGetsBetterWithRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.back = 8 * time.Second
		h := hold(t, g, d, holder.Options{})
		best := g.back
		for range 300 {
			now := time.Duration(rand.Int64N(int64(8 * time.Second)))
			g.set(func() { g.back = now })
			before := g.renewed()
			for g.renewed() == before {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(now)
			best = min(best, now)
			if late := time.Now().Round(0).Sub(reading(must(h.Lease()))); late < 0 || late > best+time.Millisecond {
				t.Fatalf("the clock is late by %v, want 0 to a millisecond over the fastest reply, %v", late, best)
			}
		}
	})
}

// It goes back only if it must have been ahead: when a server answers whose clock is behind, or the
// local one ran fast. Generators stand still then.
func TestClockGoesBackWithTheServersAndNotOtherwise(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.out, g.back = 20*time.Millisecond, 30*time.Millisecond
		h := hold(t, g, d, holder.Options{})
		last := reading(must(h.Lease()))
		watch := func(rounds int) (backward time.Duration) {
			for range rounds {
				time.Sleep(50 * time.Millisecond)
				now := reading(must(h.Lease()))
				backward = max(backward, last.Sub(now))
				last = now
			}
			return backward
		}
		if back := watch(2000); back > 0 {
			t.Errorf("the clock went back by %v, want not at all", back)
		}
		g.set(func() { g.ahead = -time.Second })
		if back := watch(600); back < 800*time.Millisecond || back > time.Second {
			t.Errorf("with the server's clock set back by a second, the clock went back by %v, want 0.8s to 1s", back)
		}
		if ahead := reading(must(h.Lease())).Sub(g.now()); ahead > g.out+g.back {
			t.Errorf("the clock is %v ahead of the server's, want %v at most", ahead, g.out+g.back)
		}
		g.set(func() { g.ahead = time.Second })
		if back := watch(2000); back > 0 {
			t.Errorf("the clock went back by %v, want not at all", back)
		}
		if late := g.now().Sub(reading(must(h.Lease()))); late > g.back+time.Millisecond {
			t.Errorf("the clock is late by %v, want %v at most", late, g.back+time.Millisecond)
		}
	})
}

// Who does not say what was stamped last may have stamped up to what the clock had come to.
func TestReleaseWithoutTheLastStamp(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		g.ahead = time.Hour
		h := hold(t, g, d, holder.Options{})
		time.Sleep(5 * time.Second)
		clock := reading(must(h.Lease()))
		time.Sleep(time.Second)
		_ = h.Release(t.Context(), time.Time{})
		if used := g.given()[0].used; !used.Equal(clock.Add(time.Second + 2*time.Second)) {
			t.Errorf("taken for used until %v; a second before, the clock was at %v, want 3s after that", used, clock)
		}
	})
	bubble(t, func(t *testing.T, g *granter, d *diary) { // also if it was set back meanwhile
		h := hold(t, g, d, holder.Options{})
		time.Sleep(8 * time.Second)
		g.set(func() { g.ahead = -5 * time.Second })
		last := reading(must(h.Lease()))
		for g.renewed() == 0 {
			last = reading(must(h.Lease()))
			time.Sleep(time.Millisecond)
		}
		if now := reading(must(h.Lease())); !now.Before(last) {
			t.Fatalf("the clock was not set back: %v after %v", now, last)
		}
		_ = h.Release(t.Context(), time.Time{})
		if used := g.given()[0].used; used.Before(last.Add(time.Second)) || used.After(last.Add(3*time.Second)) {
			t.Errorf("taken for used until %v; the clock had come to %v, want 1s to 3s after that", used, last)
		}
	})
}

// Suspend: the wall clock is ahead of the monotonic one. Nothing is stamped until a renewal has
// told that the lease is there, and the clock is set by it.
func TestSuspend(t *testing.T) {
	for name, row := range map[string]struct {
		err    error
		strict bool
		cause  error
	}{
		"there": {nil, false, nil}, "gone": {errGone, false, errGone}, "down": {errDown, false, keepalive.ErrDeadline}, "strict": {nil, true, keepalive.ErrDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *granter, d *diary) {
				var ahead atomic.Int64
				g.renew = func(int) error { return row.err }
				h := hold(t, g, d, holder.Options{Once: true, Strict: row.strict, Wall: func() time.Time { return time.Now().Round(0).Add(time.Duration(ahead.Load())) }})
				time.Sleep(time.Second / 2)
				ahead.Store(int64(ttl))
				g.set(func() { g.ahead += ttl })
				wantNone(t, h, keepalive.ErrDeadline)
				time.Sleep(1100 * time.Millisecond)
				if row.cause != nil {
					wantNone(t, h, row.cause)
					wantDone(t, h, true)
					return
				}
				wantHeld(t, h, 0)
				expect.Equal(t, "lateness of the clock", g.now().Sub(reading(must(h.Lease()))), 0)
			})
		})
	}
}

// deafRenewals do not hear that their caller has gone.
type deafRenewals struct{ *granter }

func (g deafRenewals) Renew(ctx context.Context, lease holder.Lease) (holder.Lease, error) {
	return g.granter.Renew(context.WithoutCancel(ctx), lease)
}

// A reply that comes after the deadline is for nothing, also for the clock and the window.
func TestRenewalBehindTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, g *granter, d *diary) {
		h := hold(t, deafRenewals{g}, d, holder.Options{Once: true})
		g.set(func() { g.back = 25 * time.Second })
		ctx := h.Context()
		<-ctx.Done()
		wantCause(ctx, t, keepalive.ErrDeadline)
		for range 100 {
			wantNone(t, h, keepalive.ErrDeadline)
			time.Sleep(time.Second)
		}
		wantDone(t, h, true)
	})
}
