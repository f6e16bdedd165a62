package scripts_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var limitKey = []string{"{limit}"}

// limited is a reply of limit_take.
type limited struct{ granted, remaining, reset, wait int64 }

// take asks for calls at six in an hour, of which four at once: ten minutes each.
func (b *box) take(cost, calls any) (got limited) {
	b.Helper()
	reply := b.run(scripts.LimitTake, limitKey, cost, calls, 6, hour*1000, 4)
	word(b, reply, "ok", 4)
	for i, into := range []*int64{&got.granted, &got.remaining, &got.reset, &got.wait} {
		*into = number(b, reply[i+1])
	}
	return got
}

const (
	tenMinutes = int64(600_000_000) // in microseconds
	aWhile     = 60_000_000         // that the test may take, in microseconds
)

func (b *box) wants(what string, got limited, granted, remaining, resets, waits int64) {
	b.Helper()
	expect.Equal(b, what+": granted", got.granted, granted)
	expect.Equal(b, what+": remaining", got.remaining, remaining)
	for _, one := range []struct {
		name      string
		got, want int64
	}{{"reset", got.reset, resets * tenMinutes}, {"wait", got.wait, waits * tenMinutes}} {
		if one.got > one.want || one.got < one.want-aWhile {
			b.Errorf("%s: %s: got %d µs, want %d, or little less", what, one.name, one.got, one.want)
		}
	}
}

func TestLimitGrantsItsBurstAndThenNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.wants("look at an unused limit", b.take(0, 1), 1, 4, 0, 0)
		expect.Equal(t, "keys of a limit that was looked at", b.do("EXISTS", limitKey[0]), any(int64(0)))
		b.wants("take 1", b.take(1, 1), 1, 3, 1, 0)
		b.wants("take 2", b.take(2, 1), 1, 1, 3, 0)
		before := b.look(limitKey...)
		b.wants("take 2 of the 1 that is left", b.take(2, 1), 0, 1, 3, 1)
		b.wants("look at a limit in use", b.take(0, 1), 1, 1, 3, 0)
		b.same(before)
		if left := before[limitKey[0]].expiry - b.now(); left > 3*tenMinutes/1000 || left < 3*tenMinutes/1000-aWhile/1000 {
			t.Errorf("the limit is kept for %d ms, want half an hour, or little less", left)
		}
		b.wants("take 1 of the 1 that is left", b.take(1, 1), 1, 0, 4, 0)
		b.wants("take 1 of none", b.take(1, 1), 0, 0, 4, 1)
		b.wants("take 3 of none", b.take(3, 1), 0, 0, 4, 3)
	})
}

// Of calls that come together the first ones fit.
func TestLimitGrantsAsManyOfSeveralCallsAsFit(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.wants("take 1, twice", b.take(1, 2), 2, 2, 2, 0)
		b.wants("take 1, five times", b.take(1, 5), 2, 0, 4, 1)
		b.wants("give 1 back, twice", b.take(-1, 2), 2, 2, 2, 0)
		b.wants("take 2, three times", b.take(2, 3), 1, 0, 4, 2)
		b.wants("look, three times", b.take(0, 3), 3, 0, 4, 0)
	})
}

func TestLimitGivesBackNoMoreThanWasTaken(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.wants("give 1 back of none", b.take(-1, 1), 1, 4, 0, 0)
		b.take(3, 1)
		b.wants("give 1 back of 3", b.take(-1, 1), 1, 2, 2, 0)
		b.wants("give 9 back of 2", b.take(-9, 1), 1, 4, 0, 0)
		expect.Equal(t, "keys of a limit of which all was given back", b.do("EXISTS", limitKey[0]), any(int64(0)))
	})
}

// What was taken some time ago is free again by as much as the rate gives, to a fraction.
func TestLimitRefillsEvenly(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range []struct {
			minutes                            int64
			granted, remaining, tenths, waited int64
		}{{25, 1, 1, 25, 0}, {9, 0, 0, 31, 1}, {40, 1, 3, 10, 0}, {400, 1, 3, 10, 0}} {
			b.do("SET", limitKey[0], fmt.Sprintf("%d 4", (b.now()-row.minutes*60_000)*1000))
			got := b.take(1, 1)
			what := fmt.Sprintf("take 1, %d minutes after all 4 were taken", row.minutes)
			expect.Equal(t, what+": granted", got.granted, row.granted)
			expect.Equal(t, what+": remaining", got.remaining, row.remaining)
			if want := row.tenths * tenMinutes / 10; got.reset > want || got.reset < want-aWhile {
				t.Errorf("%s: reset: got %d µs, want %d, or little less", what, got.reset, want)
			}
			if got.wait > row.waited*tenMinutes/10 || (got.wait > 0) != (row.waited > 0) {
				t.Errorf("%s: wait: got %d µs, want %d, or little less", what, got.wait, row.waited*tenMinutes/10)
			}
		}
	})
}

// After a failover to a server whose clock is earlier, what is in use begins to be free again at
// once, also if nothing is granted: a limit that is in use altogether waits for no longer than its
// own span.
func TestLimitGoesOnAfterTheClockWasSetBack(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range []struct {
			used, cost, granted, remaining, resets, waits int64
		}{{2, 1, 1, 1, 3, 0}, {4, 1, 0, 0, 4, 1}, {4, 4, 0, 0, 4, 4}, {3, 0, 1, 1, 3, 0}} {
			b.do("SET", limitKey[0], fmt.Sprintf("%d %d", (b.now()+10*hour)*1000, row.used))
			what := fmt.Sprintf("take %d of a limit of which %d were used in the future", row.cost, row.used)
			b.wants(what, b.take(row.cost, 1), row.granted, row.remaining, row.resets, row.waits)
			at := number(t, fmt.Sprint(b.do("GET", limitKey[0]))[:16])
			between(t, what+": the time from which on it is free again", at/1000, b.now()-aWhile/1000, b.now())
		}
	})
}

// A rate that no whole number of microseconds is, and a number of calls at which errors of rounding
// would add up.
func TestLimitIsExactOverManyCalls(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		const burst = 3000
		for i := range int64(burst) {
			reply := b.run(scripts.LimitTake, limitKey, 1, 1, 7, hour*1000, burst)
			expect.MustEqual(t, fmt.Sprintf("granted, of call %d", i), reply[1], "1")
			expect.MustEqual(t, fmt.Sprintf("remaining, after call %d", i), number(t, reply[2]), burst-1-i)
		}
		expect.Equal(t, "granted, beyond the burst", b.run(scripts.LimitTake, limitKey, 1, 1, 7, hour*1000, burst)[1], "0")
	})
}
