package snowflake_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a Worker whose lease the test changes.
type desk struct {
	mu    sync.Mutex
	lease snowflake.Lease
	err   error
	asked int
}

func (d *desk) Lease() (snowflake.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return d.lease, d.err
}

func (d *desk) set(change func(*snowflake.Lease)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = nil
	change(&d.lease)
}

func (d *desk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

func (d *desk) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked
}

// granted is a lease of worker id 1 from now on, by a clock that agrees with this one.
func granted(fence int64, ttl time.Duration) *desk {
	now := time.Now()
	return &desk{lease: snowflake.Lease{Worker: 1, Fence: fence, NotBefore: now, NotAfter: now.Add(ttl), Time: now, At: now}}
}

// like is what the ids of a test look like. The zero value of a field means the default beside it.
type like struct {
	Layout snowflake.Layout // twitter
	Epoch  time.Time        // epoch
	Spread bool             // see snowflake.Config
}

// shaped is a worker whose leases have a layout and an epoch where they have none.
type shaped struct {
	snowflake.Worker

	like like
}

func (s shaped) Lease() (snowflake.Lease, error) {
	lease, err := s.Worker.Lease()
	if lease.Layout == (snowflake.Layout{}) {
		lease.Layout, lease.Epoch = s.like.Layout, s.like.Epoch
	}
	return lease, err
}

func (l like) worker(worker snowflake.Worker) snowflake.Worker {
	if l.Layout == (snowflake.Layout{}) {
		l.Layout = twitter
	}
	if l.Epoch.IsZero() {
		l.Epoch = epoch
	}
	return shaped{worker, l}
}

// generator makes one that the test ends.
func generator(t *testing.T, worker snowflake.Worker, ids like) *snowflake.Generator {
	t.Helper()
	g, err := snowflake.New(ids.worker(worker), snowflake.Config{Spread: ids.Spread})
	expect.NoError(t, "snowflake.New", err)
	t.Cleanup(func() { g.Stop() })
	return g
}

func next(t *testing.T, g *snowflake.Generator) snowflake.ID {
	t.Helper()
	id, err := g.Next(t.Context())
	expect.NoError(t, "Next", err)
	return id
}

func nextN(t *testing.T, g *snowflake.Generator, n int) []snowflake.ID {
	t.Helper()
	ids, err := g.NextN(t.Context(), n)
	expect.NoError(t, "NextN", err)
	return ids
}

// epoch is before the year 2000, in which the clock of a synctest bubble begins.
var epoch = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

var twitter = snowflake.MustLayout(snowflake.DefaultLayout)

func parts(id snowflake.ID) snowflake.Parts { return twitter.Decode(id, epoch) }

func wantError(t *testing.T, g *snowflake.Generator, want error) {
	t.Helper()
	if id, err := g.Next(t.Context()); !errors.Is(err, want) {
		t.Errorf("Next: %v, %v, want %v", id, err, want)
	}
	if err := g.Fill(t.Context(), make([]snowflake.ID, 3)); !errors.Is(err, want) {
		t.Errorf("Fill: %v, want %v", err, want)
	}
}

// wantRising fails unless each id is larger than the one before.
func wantRising(t *testing.T, ids []snowflake.ID) {
	t.Helper()
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			t.Fatalf("id %d of %d: %d (%+v) follows %d (%+v)", i, len(ids), ids[i], parts(ids[i]), ids[i-1], parts(ids[i-1]))
		}
	}
}

// wantDistinct fails if an id is there twice.
func wantDistinct(t *testing.T, ids []snowflake.ID) {
	t.Helper()
	slices.Sort(ids)
	wantRising(t, ids)
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errEnough)
	return ctx
}

var errEnough = errors.New("enough")
