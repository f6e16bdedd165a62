package coatchecktest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/coatchecktest"
	"github.com/coatcheck/coatcheck/idempotency"
)

// verdict keeps what a check says of a resolver that is wrong.
type verdict struct {
	testing.TB

	mu     sync.Mutex
	faults []string
}

func (v *verdict) Errorf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

var errClosed = errors.New("the operation is closed for this attempt")

// table is what docs/effects.md keeps in a database.
type table struct {
	mu      sync.Mutex
	fences  map[string]int64
	effects map[string]int
}

func (d *table) attempt(_ context.Context, operation string, fence int64, begun func()) error {
	begun()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.effects[operation] > 0 || d.fences[operation] >= fence {
		return errClosed
	}
	d.effects[operation]++
	return nil
}

func (d *table) count(_ context.Context, operation string) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.effects[operation], nil
}

// look says what there is, and closes nothing.
func (d *table) look(_ context.Context, o idempotency.Operation) (said idempotency.Resolution, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	said.Decision = idempotency.DecisionNotBegun
	if d.effects[o.Name] > 0 {
		said = idempotency.Resolution{Decision: idempotency.DecisionHappened, Answer: idempotency.Answer{Status: 201}}
	}
	return said, nil
}

func (d *table) closing(ctx context.Context, o idempotency.Operation) (idempotency.Resolution, error) {
	d.mu.Lock()
	d.fences[o.Name] = max(d.fences[o.Name], o.Fence)
	d.mu.Unlock()
	return d.look(ctx, o)
}

func newTable() *table { return &table{fences: map[string]int64{}, effects: map[string]int{}} }

func TestCheckResolverTellsOneThatClosesFromOneThatLooks(t *testing.T) {
	t.Parallel()
	d := newTable()
	coatchecktest.CheckResolver(t, coatchecktest.ResolverCase{Attempt: d.attempt, Resolve: d.closing, Effects: d.count})

	for name, row := range map[string]struct {
		change func(d *table, c *coatchecktest.ResolverCase)
		want   string
	}{
		"it only looks": {func(d *table, c *coatchecktest.ResolverCase) { c.Resolve = d.look }, "after an attempt that was paused"},
		"it closes for good": {func(d *table, c *coatchecktest.ResolverCase) {
			c.Resolve = func(ctx context.Context, o idempotency.Operation) (idempotency.Resolution, error) {
				o.Fence = 1 << 52
				return d.closing(ctx, o)
			}
		}, "a freed key could never run"},
		"it forgets what it has closed": {func(d *table, c *coatchecktest.ResolverCase) {
			c.Resolve = func(ctx context.Context, o idempotency.Operation) (idempotency.Resolution, error) {
				d.mu.Lock()
				d.fences[o.Name] = o.Fence
				d.mu.Unlock()
				return d.look(ctx, o)
			}
		}, "the attempt with fence 4 had its effect"},
		"it has no answer": {func(d *table, c *coatchecktest.ResolverCase) {
			c.Resolve = func(ctx context.Context, o idempotency.Operation) (idempotency.Resolution, error) {
				said, err := d.closing(ctx, o)
				said.Answer = idempotency.Answer{}
				return said, err
			}
		}, "has the status 0"},
		"it is away": {func(_ *table, c *coatchecktest.ResolverCase) {
			c.Resolve = func(context.Context, idempotency.Operation) (idempotency.Resolution, error) {
				return idempotency.Resolution{}, errClosed
			}
		}, "error the operation is closed"},
	} {
		d, v := newTable(), &verdict{TB: t}
		c := coatchecktest.ResolverCase{Attempt: d.attempt, Resolve: d.closing, Effects: d.count, Races: 1}
		row.change(d, &c)
		coatchecktest.CheckResolver(v, c)
		if said := strings.Join(v.faults, "\n"); !strings.Contains(said, row.want) {
			t.Errorf("%s: the check says %q, want %q", name, said, row.want)
		}
	}
}
