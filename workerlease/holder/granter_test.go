package holder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl    = 30 * time.Second
	margin = time.Second // the default of that TTL
)

// refusal is an error with its verdict.
type refusal struct {
	holder.Verdict

	text string
}

func (r *refusal) Error() string { return r.text }

var (
	errDown  = &refusal{text: "down"}
	errGone  = &refusal{holder.Verdict{Lost: true}, "gone"}
	errFinal = &refusal{holder.Verdict{Final: true}, "never"}
)

func errFull(wait time.Duration) error { return &refusal{holder.Verdict{Wait: wait}, "full"} }

// granter grants worker ids, one after the other, beyond a network and by a clock of its own. What
// a hook answers instead of nil is the reply; deaf ones are told after the work was done, as when a
// reply is lost.
type granter struct {
	mu        sync.Mutex
	ahead     time.Duration // of its clock before the local one
	out, back time.Duration // how long a request and a reply take
	acquire   func(n int) error
	acquired  func(n int) error // the reply's fate
	renew     func(n int) error
	release   func(ctx context.Context) error

	nonces   []string // as asked for
	granted  map[string]holder.Lease
	renewals []time.Time
	released []released
}

type released struct {
	lease holder.Lease
	used  time.Time
	at    time.Time
}

func (g *granter) now() time.Time { return time.Now().Add(g.ahead).Round(0).Truncate(time.Millisecond) }

// travel waits as long as a message takes, or less if it is not waited for any more.
func (g *granter) travel(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return ctx.Err()
	}
}

func hook(f func(int) error, n int) error {
	if f == nil {
		return nil
	}
	return f(n)
}

func (g *granter) Acquire(ctx context.Context, nonce string) (holder.Lease, error) {
	g.mu.Lock()
	g.nonces = append(g.nonces, nonce)
	n := len(g.nonces)
	out, back := g.out, g.back
	g.mu.Unlock()
	if err := g.travel(ctx, out); err != nil {
		return holder.Lease{}, err
	}
	if err := hook(g.acquire, n); err != nil {
		return holder.Lease{}, err
	}
	lease := g.grant(nonce)
	if err := hook(g.acquired, n); err != nil {
		return holder.Lease{}, err
	}
	return lease, g.travel(ctx, back)
}

func (g *granter) grant(nonce string) holder.Lease {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.granted == nil {
		g.granted = map[string]holder.Lease{}
	}
	lease, again := g.granted[nonce]
	lease.Now = g.now()
	if !again {
		id := len(g.granted)
		lease = holder.Lease{
			Pool: "p", WorkerID: id, Datacenter: 3, Token: fmt.Sprint("token of ", id), Fence: int64(100 + id), Now: g.now(), NotBefore: g.now(), NotAfter: g.now().Add(ttl), TTL: ttl,
			Layout: snowflake.DefaultLayout, Epoch: snowflake.DefaultEpoch,
		}
	}
	g.granted[nonce] = lease
	return lease
}

func (g *granter) Renew(ctx context.Context, lease holder.Lease) (holder.Lease, error) {
	g.mu.Lock()
	g.renewals = append(g.renewals, time.Now())
	n := len(g.renewals)
	out, back := g.out, g.back
	g.mu.Unlock()
	if err := g.travel(ctx, out); err != nil {
		return holder.Lease{}, err
	}
	if err := hook(g.renew, n); err != nil {
		return holder.Lease{}, err
	}
	g.mu.Lock()
	lease.Now = g.now()
	lease.NotAfter = lease.Now.Add(ttl)
	g.mu.Unlock()
	return lease, g.travel(ctx, back)
}

func (g *granter) Release(ctx context.Context, lease holder.Lease, used time.Time) error {
	g.mu.Lock()
	g.released = append(g.released, released{lease, used, time.Now()})
	g.mu.Unlock()
	if g.release != nil {
		return g.release(ctx)
	}
	return ctx.Err()
}

func (g *granter) Judge(err error) holder.Verdict {
	if said, ok := errors.AsType[*refusal](err); ok {
		return said.Verdict
	}
	return holder.Verdict{}
}

func (g *granter) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *granter) asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.nonces)
}

func (g *granter) slots() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.granted)
}

func (g *granter) renewed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.renewals)
}

func (g *granter) given() []released {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.released)
}

// diary keeps the events of a holder.
type diary struct {
	mu     sync.Mutex
	events []holder.Event
}

func (d *diary) note(e holder.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

func (d *diary) all() []holder.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
}

func (d *diary) last() holder.Event {
	all := d.all()
	return all[len(all)-1]
}

// kinds are the kinds of events in order, those that repeat only once.
func (d *diary) kinds() (kinds []holder.Kind) {
	for _, e := range d.all() {
		kinds = append(kinds, e.Kind)
	}
	return slices.Compact(kinds)
}

func (d *diary) want(t *testing.T, kinds ...holder.Kind) {
	t.Helper()
	expect.Equal(t, "kinds of events", d.kinds(), kinds, cmpopts.EquateEmpty())
}

// bubble runs a test in which time passes only while all wait.
func bubble(t *testing.T, test func(t *testing.T, g *granter, d *diary)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, &granter{}, &diary{}) })
}

// hold holds with options to which the diary is added.
func hold(t *testing.T, g holder.Leaser, d *diary, options holder.Options) *holder.Holder {
	t.Helper()
	options.Observe = d.note
	h, err := holder.Hold(t.Context(), g, options)
	expect.NoError(t, "Hold", err)
	t.Cleanup(func() { _ = h.Release(context.Background(), time.Time{}) })
	return h
}

// wantHeld checks that a worker id can be stamped with now.
func wantHeld(t *testing.T, h *holder.Holder, id int) {
	t.Helper()
	lease, err := h.Lease()
	expect.Error(t, "Lease", err, nil)
	if lease.Worker != id || lease.Fence != int64(100+id) || lease.Datacenter != 3 {
		t.Errorf("Lease: got %+v, want worker id %d, fence %d and datacenter 3", lease, id, 100+id)
	}
	current, err := h.Current()
	expect.Error(t, "Current", err, nil)
	if token := fmt.Sprint("token of ", id); current.WorkerID != id || current.Token != token {
		t.Errorf("Current: got %+v, want worker id %d and token %q", current, id, token)
	}
	expect.Error(t, "Err while it is held", h.Err(), nil)
	wantCause(h.Context(), t, nil)
}

// wantCause checks why a context has ended; nil if it has not.
func wantCause(ctx context.Context, t *testing.T, cause error) {
	t.Helper()
	expect.Error(t, "cause of the end of the context", context.Cause(ctx), cause)
}

// wantAsked checks how often a grant was asked for.
func (g *granter) wantAsked(t *testing.T, times int) {
	t.Helper()
	expect.Equal(t, "attempts to get a grant", len(g.asked()), times)
}

// wantGiven checks of which worker ids the leases were given back.
func (g *granter) wantGiven(t *testing.T, ids ...int) {
	t.Helper()
	var got []int
	for _, one := range g.given() {
		got = append(got, one.lease.WorkerID)
	}
	expect.Equal(t, "worker ids that were given back", got, ids, cmpopts.EquateEmpty())
}

// release gives a lease back, which is to succeed.
func release(t *testing.T, h *holder.Holder, used time.Time) {
	t.Helper()
	expect.Error(t, "Release", h.Release(t.Context(), used), nil)
}

// wantNone checks that nothing can be stamped, for this reason.
func wantNone(t *testing.T, h *holder.Holder, cause error) {
	t.Helper()
	lease, err := h.Lease()
	expect.Error(t, "Lease while nothing is held", err, holder.ErrNone)
	expect.Error(t, "Lease while nothing is held", err, cause)
	expect.Equal(t, "Lease while nothing is held: end of the window", lease.NotAfter, time.Time{})
	current, err := h.Current()
	expect.Error(t, "Current while nothing is held", err, holder.ErrNone)
	expect.Error(t, "Current while nothing is held", err, cause)
	expect.Equal(t, "Current while nothing is held: token", current.Token, "")
	expect.Error(t, "Err while nothing is held", h.Err(), cause)
}

func wantDone(t *testing.T, h *holder.Holder, done bool) {
	t.Helper()
	select {
	case <-h.Done():
		if !done {
			t.Error("Done: closed, want it open")
		}
	default:
		if done {
			t.Error("Done: open, want it closed")
		}
	}
}
