package scripts_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var retireKeys = []string{openKeys[0], openKeys[1], openKeys[2], "{c}:last"}

func (b *box) retire() []string {
	b.Helper()
	return b.run(scripts.CounterRetire, retireKeys)
}

func TestRetiredCounterTellsItsLastValueAndTakesNoMore(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.retire(), "unknown")
		b.opens(opening{})
		b.do("SET", openKeys[0], "9007199254740993", "PX", hour)
		for range 2 { // the first reply can have been lost
			want(t, b.retire(), "ok", "9007199254740993")
		}
		want(t, b.incr(1), "overflow")
		expect.Equal(t, "the counter's end", b.expiry(openKeys[0]), -1)
		b.run(scripts.CounterSet, openKeys, "41", 0, hour, "any", "", "")
		want(t, b.incr(1), "ok", "42")
		want(t, b.retire(), "ok", "42")
	})
}

func TestCounterThatMayHaveGoneBackIsNotRetired(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.do("SET", openKeys[0], "7")
		want(t, b.retire(), "not-in-order")
		b.opens(opening{})
		// of another incarnation
		b.do("SET", openKeys[2], "0123456789012345678901234567890123456789 1 0 0")
		want(t, b.retire(), "not-in-order")
		b.at(opening{}, "2007", true)
		want(t, b.retire(), "ok", "2007")
	})
}

func TestOnlyCountersAreRetired(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.do("SET", openKeys[0], "no number")
		want(t, b.retire(), "not-an-integer")
		b.do("DEL", openKeys[0])
		b.do("RPUSH", openKeys[0], "1")
		want(t, b.retire(), "not-an-integer")
	})
}
