package snowflake

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

type oneLease struct{ lease Lease }

func (o oneLease) Lease() (Lease, error) { return o.lease, nil }

// A ticket that was drawn before a skip becomes good when the limit rises, though no call has drawn
// since: it counts as used when the next grant begins.
func TestTicketFromBeforeASkipCountsAsUsed(t *testing.T) {
	now := time.Now()
	g, err := New(oneLease{Lease{
		Layout: MustLayout("41/10/12"), Epoch: now.Add(-time.Hour), Worker: 1, Fence: 1,
		NotBefore: now, NotAfter: now.Add(time.Hour), At: now, Time: now,
	}}, Config{})
	expect.NoError(t, "New", err)
	defer g.Stop()
	if _, err := g.Next(t.Context()); err != nil {
		t.Fatalf("Next: got error %v, want none", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.current.Load()
	drawn := p.next.Add(1) - 1
	g.skip(p, p.next.Load()+10_000)
	p.limit.Store(p.next.Load())
	g.cool()
	if g.used < drawn {
		t.Errorf("the last position that may have been stamped: got %d, want at least %d", g.used, drawn)
	}
}

// hourLater is a lease of worker id 1 whose window begins in an hour.
func hourLater() Lease {
	now := time.Now()
	return Lease{
		Layout: MustLayout("41/10/12"), Epoch: now.Add(-24 * time.Hour), Worker: 1, Fence: 1,
		NotBefore: now.Add(time.Hour), NotAfter: now.Add(2 * time.Hour), At: now, Time: now,
	}
}

// A call draws from new positions and is overtaken: before it goes on, the window has begun, and
// another call has raised the limit for all. What it drew is redeemed without a look at the clock.
func TestTicketFromBeforeTheWindowIsStampedInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := hourLater()
		g, err := New(oneLease{lease}, Config{})
		expect.NoError(t, "New", err)
		defer g.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Next, an hour before the window: got %v, want %v", err, context.DeadlineExceeded)
		}
		p := g.current.Load()
		drawn := ticket{positions: p, first: p.next.Add(3) - 3, count: 3}
		time.Sleep(time.Hour)
		expect.NoError(t, "Fill", g.Fill(t.Context(), make([]ID, batch)))
		if _, err := g.redeem(t.Context(), &drawn); err != nil {
			t.Fatalf("redeem: got error %v, want none", err)
		}
		got := lease.Layout.Decode(drawn.id(drawn.first), lease.Epoch).Time
		if got.Before(lease.NotBefore) || !got.Before(lease.NotAfter) {
			t.Errorf("the ticket was stamped %v, want a time of the window from %v to %v", got, lease.NotBefore, lease.NotAfter)
		}
	})
}

// As above, for a window that begins later in the course of one grant, and for a process that was
// numbered by hand, whose window is not bounded by a lease.
func TestNoPositionLiesBeforeTheWindow(t *testing.T) {
	lease := hourLater()
	later := lease
	later.NotBefore = lease.NotBefore.Add(30 * time.Minute)
	static, err := Static(lease.Layout, lease.Epoch, 0, 1)
	expect.NoError(t, "Static", err)
	for name, leases := range map[string][]Lease{"a new grant": {lease}, "a grant that begins later": {lease, later}, "by hand": {static.lease}} {
		for _, spread := range []bool{false, true} {
			worker := &oneLease{}
			g, err := New(worker, Config{Spread: spread})
			expect.NoError(t, "New", err)
			for _, worker.lease = range leases {
				g.mu.Lock()
				g.lease.asked = 0
				expect.NoError(t, "ask", g.ask(time.Now()))
				g.mu.Unlock()
				first := lease.Layout.Decode(g.current.Load().id(g.current.Load().next.Load()), lease.Epoch).Time
				if first.Before(worker.lease.NotBefore.Truncate(time.Millisecond)) || first.Before(time.Now().Add(-time.Hour)) {
					t.Errorf("%s, spread %v: the first position is of %v, want none before the window, which begins at %v", name, spread, first,
						worker.lease.NotBefore)
				}
			}
			if used := g.Stop(); !used.IsZero() {
				t.Errorf("%s, spread %v: used until %v, want the zero time: nothing was stamped", name, spread, used)
			}
		}
	}
}

func TestEmptyFillFailsAfterStop(t *testing.T) {
	g, err := New(&oneLease{}, Config{})
	expect.NoError(t, "New", err)
	expect.Error(t, "Fill without room", g.Fill(t.Context(), nil), nil)
	g.Stop()
	expect.Error(t, "Fill without room, after Stop", g.Fill(t.Context(), nil), ErrStopped)
	_, err = g.NextN(t.Context(), 0)
	expect.Error(t, "NextN of 0, after Stop", err, ErrStopped)
}
