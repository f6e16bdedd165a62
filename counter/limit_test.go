package counter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/logtest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// numbered adds one value that has to stay within a limit.
func (c counters) numbered(t testing.TB, key string, limit int64) (int64, error) {
	t.Helper()
	got, err := c.Add(t.Context(), key, counter.Request{Limit: limit})
	return got.Last, err
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
	expect.MustEqual(t, "error of Set", before.Set(t.Context(), "short", 60, counter.SetOptions{}), nil)
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
	wantRefused(t, err, counter.ErrNotFound) // as Redis has it; it begins nowhere
}

// The log names a counter that is refused: the first at once, then one of them a minute.
func TestLogNamesARefusedCounterOnceAMinute(t *testing.T) {
	log := &logtest.Text{}
	var refusals counter.Refusals
	for _, row := range []struct {
		after time.Duration // since the start
		key   string
		want  string // in the last line
		lines int
	}{
		{0, "a", `kind=counter key=a last=7 limit=9 why="Redis`, 1},
		{59 * time.Second, "b", "key=a", 1},
		{61 * time.Second, "c", "key=c last=7 limit=9", 2},
	} {
		behind := &counter.BehindError{Kind: "counter", Key: row.key, Value: 5, Seen: 7, Limit: 9, Why: "restarted"}
		refusals.Log(t.Context(), log.Logger(), fmt.Errorf("opening: %w", behind), row.after)
		refusals.Log(t.Context(), log.Logger(), counter.ErrLimit, row.after)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		expect.Equal(t, "lines", len(lines), row.lines)
		expect.Contains(t, "the last line", lines[len(lines)-1], row.want)
	}
	expect.Contains(t, "the log", log.String(), `calls=1 try="coatcheck counter set KEY VALUE"`, "calls=2 ")
}

var tries = counter.Request{Limit: 10, TTL: time.Hour, AfterLoss: counter.AfterLossStay}

// try adds one to a count whose values nobody uses.
func (c counters) try(t *testing.T, want int64) {
	t.Helper()
	expect.Eventually(t, "it is served", func() bool {
		got, err := c.Add(t.Context(), "tries", tries)
		if err == nil && got.Last != want {
			t.Fatalf("Add to tries: got %d, want %d", got.Last, want)
		}
		return err == nil
	})
}

// A count of tries goes on after a loss from the last value that is known, until its limit, and
// ends when it was to end.
func TestCountThatStaysGoesOnAfterALoss(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	before := process(t, server.URL())
	before.try(t, 1)
	before.try(t, 2)
	server.Stop() // in order, so that the file is whole
	server.Restart()
	before.try(t, 3)
	process(t, server.URL(), strict).try(t, 4)
	do(t, server, "DEL", onstore.Key(before.store, "counter", "tries"))
	before.try(t, 4) // it has seen 3
	do(t, server, "FLUSHALL")
	for i := int64(5); i <= 10; i++ {
		before.try(t, i)
	}
	_, err := before.Add(t.Context(), "tries", tries)
	wantRefused(t, err, counter.ErrLimit)
	expect.Equal(t, "counters that were moved", before.Totals().Moved, 0)
	left := server.Client().PTTL(t.Context(), onstore.Key(before.store, "counter", "tries")).Val()
	if left <= 0 || left > time.Hour {
		t.Errorf("PTTL of a count with an hour, after the losses: got %v", left)
	}
}

func TestCountThatStaysNeedsALimitAndAnEnd(t *testing.T) {
	c := process(t, redistest.Start(t).URL())
	for _, request := range []counter.Request{
		{AfterLoss: counter.AfterLossStay}, {AfterLoss: counter.AfterLossStay, Limit: 10}, {AfterLoss: counter.AfterLossStay, TTL: time.Hour},
		{AfterLoss: counter.AfterLossRefuse, Limit: 10, TTL: time.Hour}, {AfterLoss: "guess", Limit: 10, TTL: time.Hour},
	} {
		_, err := c.Add(t.Context(), "k", request)
		wantRefused(t, err, counter.ErrInvalid)
	}
}
