package counter_test

import (
	"errors"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// numbered adds one value that has to stay within a limit.
func (c counters) numbered(t testing.TB, key string, limit int64) (int64, error) {
	t.Helper()
	got, err := c.Add(t.Context(), key, counter.Request{Limit: limit})
	return got.Value, err
}

// wantHeld checks that a counter was neither added to nor moved, and that the error says so.
func (c counters) wantHeld(t *testing.T, key string, limit, value int64) {
	t.Helper()
	_, err := c.numbered(t, key, limit)
	wantRefused(t, err, counter.ErrBehind)
	var behind *counter.BehindError
	if !errors.As(err, &behind) || behind.Limit != limit {
		t.Errorf("Add to %s with limit %d: got %v, want a BehindError with that limit", key, limit, err)
	}
	stored, err := c.Get(t.Context(), key)
	expect.Equal(t, "error of Get "+key, err, nil)
	expect.Equal(t, "Get "+key+" after it was held", stored, value)
}

// Moving a counter past the values that may have been lost must not use up its range: where the
// move would pass the limit, the counter hands out nothing until an operator sets it.
func TestCounterIsHeldWhereItsMoveWouldPassTheLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	before := process(t, server.URL())
	before.countTo(t, "short", 50)
	before.countTo(t, "exact", 50)
	before.countTo(t, "ended", 999)
	server.Stop() // in order, so that the file is whole
	server.Restart()
	for _, c := range []counters{before, process(t, server.URL())} {
		for range 2 {
			expect.Eventually(t, "Redis answers", func() bool { _, err := c.Get(t.Context(), "short"); return err == nil })
			c.wantHeld(t, "short", 999, 50)
			c.wantHeld(t, "exact", 50+margin, 50)
			_, err := c.numbered(t, "ended", 999)
			wantRefused(t, err, counter.ErrLimit) // no operator can help that
		}
	}
	got, err := before.numbered(t, "exact", 50+margin+1)
	if got != 50+margin+1 || err != nil {
		t.Errorf("Add with room for one value after the move: got %d, %v; want %d", got, err, 50+margin+1)
	}
	expect.MustEqual(t, "error of Set", before.Set(t.Context(), "short", 60, 0), nil)
	got, err = before.numbered(t, "short", 999)
	if got != 61 || err != nil {
		t.Errorf("Add after the counter was set: got %d, %v; want 61", got, err)
	}
}

// A process that reports what it has seen after a loss of everything does not move such a counter
// either.
func TestReportDoesNotMoveACounterPastItsLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, other := process(t, server.URL()), process(t, server.URL())
	for range 50 {
		if _, err := c.numbered(t, "k", 999); err != nil {
			t.Fatalf("Add before the loss: %v", err)
		}
	}
	other.countTo(t, "own", 1)
	do(t, server, "FLUSHALL")
	expect.Eventually(t, "the hold-off is over", func() bool { _, err := other.Incr(t.Context(), "own"); return err == nil })
	_, err := c.numbered(t, "k", 999)
	wantRefused(t, err, counter.ErrBehind)
	_, err = c.Get(t.Context(), "k")
	wantRefused(t, err, counter.ErrUnknown) // as Redis has it; it begins nowhere
}
