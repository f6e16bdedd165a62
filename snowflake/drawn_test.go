package snowflake

import (
	"testing"
	"time"
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
	if err != nil {
		t.Fatal(err)
	}
	defer g.Stop()
	if _, err := g.Next(t.Context()); err != nil {
		t.Fatal(err)
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
