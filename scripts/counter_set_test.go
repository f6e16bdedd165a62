package scripts_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

// set sets a counter; the record of one that is removed is kept for an hour.
func (b *box) set(value any, ttl int64) []string {
	b.Helper()
	return b.run(scripts.CounterSet, openKeys, value, ttl, hour, "any", "", "")
}

func TestCounterIsSetAndTellsWhatItWas(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		for _, row := range [][2]string{
			{"5", ""}, {"9007199254740993", "5"}, {"-3", "9007199254740993"}, {"9223372036854775807", "-3"}, {"-9223372036854775808", "9223372036854775807"},
			{"", "-9223372036854775808"}, {"7", ""},
		} {
			want(t, b.set(row[0], 0), "ok", row[1])
			if row[0] == "" {
				want(t, b.count(), "unknown")
				continue
			}
			want(t, b.count(), "ok", row[0])
			expect.Equal(t, "the counter's end", b.expiry(openKeys[0]), -1)
		}
		before := b.look(openKeys[2])
		want(t, b.run(scripts.CounterSet, []string{"{none}", "{none}:record", openKeys[2]}, "", 0, hour, "any", "", ""), "unknown")
		b.same(before)
		expect.Equal(t, "keys that removing what is not there wrote", b.do("EXISTS", "{none}", "{none}:record"), any(int64(0)))
		want(t, b.set(8, hour), "ok", "7")
		between(t, "the end", b.expiry(openKeys[0]), b.now()+hour-slack, b.now()+hour)
		between(t, "the end of the record", b.expiry(openKeys[1]), b.now()+day+hour-slack, b.now()+day+hour)
		want(t, b.set(9, 0), "ok", "8")
		expect.Equal(t, "the counter's end", b.expiry(openKeys[0]), -1)
	})
}

// A counter that goes forward only is not set below what it has, nor below what was reported of it.
func TestCounterIsSetForward(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		forward := func(value string) []string {
			return b.run(scripts.CounterSet, openKeys, value, 0, hour, "forward", "", "")
		}
		want(t, forward("-5"), "ok", "")
		want(t, forward("9007199254740993"), "ok", "-5")
		before := b.look(openKeys...)
		want(t, forward("9007199254740992"), "past", "9007199254740993")
		b.same(before)
		want(t, forward("9007199254740993"), "ok", "9007199254740993")
		b.do("DEL", openKeys[0])
		record, _ := b.do("GET", openKeys[1]).(string)
		era, _, _ := strings.Cut(record+" ", " ")
		b.do("SET", openKeys[1], cmp.Or(era, "0")+" 0 70 -") // a process has reported 70
		want(t, forward("69"), "past", "70")
		want(t, forward("70"), "ok", "")
		b.do("SET", openKeys[0], "abc")
		want(t, forward("1"), "not-an-integer")
		want(t, b.set("1", 0), "ok", "")
	})
}

// What was reported of a generation that has ended does not count for the next one.
func TestCounterIsSetForwardAfterItsEnd(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", openKeys[1], "1 0 70 1") // it has ended
		want(t, b.run(scripts.CounterSet, openKeys, 5, 0, hour, "forward", "", ""), "ok", "")
	})
}

// The condition and the change are one step, and a condition counts before the direction.
func TestCounterIsSetOnACondition(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		set := func(value, is, not string) []string {
			return b.run(scripts.CounterSet, openKeys, value, 0, hour, "forward", is, not)
		}
		for _, is := range []string{"*", "0", "none"} {
			want(t, set("5", is, ""), "condition")
			want(t, set("", is, ""), "unknown")
		}
		expect.Equal(t, "keys of a counter that was not set", b.do("EXISTS", openKeys[0], openKeys[1], openKeys[2]), any(int64(0)))
		want(t, set("5", "", "*"), "ok", "")
		before := b.look(openKeys...)
		for _, row := range [][2]string{{"", "*"}, {"4 6 50", ""}, {"none", ""}, {"", "4 5 6"}, {"5", "5"}, {"*", "*"}} {
			want(t, set("9", row[0], row[1]), "condition")
			want(t, set("1", row[0], row[1]), "condition")
			want(t, b.run(scripts.CounterSet, openKeys, "", 0, hour, "any", row[0], row[1]), "condition")
		}
		b.same(before)
		want(t, set("6", "4 5", "6 7"), "ok", "5")
		want(t, set("7", "*", "5"), "ok", "6")
		want(t, b.run(scripts.CounterSet, openKeys, "", 0, hour, "any", "7", ""), "ok", "7")
		b.do("SET", openKeys[0], "abc") // is there, and matches no value
		want(t, set("9", "", "*"), "condition")
		want(t, set("9", "9", ""), "condition")
		want(t, b.run(scripts.CounterSet, openKeys, 9, 0, hour, "any", "*", "9"), "ok", "")
	})
}

func TestCounterThatIsSetBackIsOfAnotherLife(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", openKeys[0], "100")
		want(t, b.set("200", 0), "ok", "100") // forward
		expect.Equal(t, "the life of a counter that was set forward", b.at(opening{floor: "100", life: "0"}, "200", false).life, "0")
		for _, row := range []struct{ before, value string }{{"200", "199"}, {"-5", "-6"}, {"9007199254740993", "9007199254740992"}, {"abc", "5"}, {"abc", ""}, {"7", ""}, {"", "3"}} {
			b.do("DEL", openKeys[0])
			if row.before != "" {
				b.do("SET", openKeys[0], row.before)
			}
			was := b.opensAny()
			b.tick()
			b.run(scripts.CounterSet, openKeys, row.value, 0, hour, "any", "", "")
			got := b.at(opening{floor: "9223372036854775000", life: was, refuse: true}, row.value, false)
			if got.life == was || got.life == "0" {
				t.Errorf("set from %q to %q: it is of life %s as before, or of none; that was %s", row.before, row.value, got.life, was)
			}
			if reply := b.open(opening{floor: "9223372036854775000", life: got.life, refuse: true}); reply[0] != "behind" {
				t.Errorf("set from %q to %q, and opened by one that has seen it in its new life: got %q, want behind", row.before, row.value, reply)
			}
		}
		b.do("DEL", openKeys[0])
		b.do("RPUSH", openKeys[0], "x")
		want(t, b.set(4, 0), "ok", "")
		want(t, b.count(), "ok", "4")
	})
}

// opensAny is the life of a counter, whatever it holds.
func (b *box) opensAny() string {
	b.Helper()
	if record, ok := b.do("GET", openKeys[1]).(string); ok {
		return strings.Fields(record)[1]
	}
	return "0"
}

func TestRecordOfARemovedCounterIsKeptForAWhile(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.do("SET", openKeys[0], "100")
		want(t, b.set("", 0), "ok", "100")
		between(t, "the end of the record", b.expiry(openKeys[1]), b.now()+hour-slack, b.now()+hour)
		life := b.at(opening{floor: "100", life: "0"}, "", false).life
		want(t, b.incr(1), "ok", "1")
		b.at(opening{floor: "100", life: "0"}, "1", false)
		b.at(opening{floor: "100", life: life}, "1100", true)
	})
}

func TestCounterThatIsSetIsInOrder(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", openKeys[0], "60")
		later(b)
		want(t, b.set(2000, 0), "ok", "60")
		b.at(opening{floor: "1900", life: "0", refuse: true}, "2000", false)
		b.at(opening{refuse: true}, "2000", false)
	})
}

func TestAddingWithAFloorALimitAndARequest(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		add := func(by int, retention int64, floor, limit string) []string {
			keys := counterKeys[:3]
			if retention > 0 {
				keys = counterKeys
			}
			return b.incrBy(keys, by, retention, floor, limit, "", 0)
		}
		want(t, add(1, hour, "", ""), "behind") // never found in order
		want(t, b.count(), "unknown")
		b.begin()
		want(t, add(6, 0, "", "5"), "limit")
		want(t, b.count(), "unknown")          // not 0
		want(t, add(5, 0, "0", "5"), "behind") // it was there, and has gone
		want(t, add(5, 0, "", "5"), "ok", "5")
		want(t, add(1, 0, "", "5"), "limit")
		want(t, add(1, 0, "6", ""), "behind")
		want(t, add(1, hour, "6", ""), "behind")
		want(t, add(1, hour, "5", "5"), "limit")
		want(t, b.count(), "ok", "5")
		expect.Equal(t, "EXISTS of the record of a request that was refused", b.do("EXISTS", counterKeys[3]).(int64), 0)
		want(t, add(1, hour, "5", "6"), "ok", "6")
		want(t, add(1, hour, "100", "1"), "again", "6")

		b.do("SET", counterKeys[0], "9007199254740992", "PX", hour)
		want(t, add(1, 0, "9007199254740993", ""), "behind")
		want(t, add(2, 0, "9007199254740992", "9007199254740993"), "limit")
		between(t, "the counter's end", b.expiry(counterKeys[0]), b.now()+hour-slack, b.now()+hour)
		want(t, add(1, 0, "9007199254740992", "9007199254740993"), "ok", "9007199254740993")
		b.do("SET", counterKeys[0], "-10")
		want(t, add(1, 0, "-9", ""), "behind")
		want(t, add(1, 0, "-10", ""), "ok", "-9")
	})
}

func TestAddingInAnotherEraThanTheProcessKnowsIsNotInOrder(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		era := b.opens(opening{}).era
		add := func(era string) []string { return b.incrBy(counterKeys[:3], 1, 0, "", "", era, 0) }
		want(t, add(era), "ok", "1")
		b.do("FLUSHALL") // and a process that knows nothing of it was the first to come
		next := b.opens(opening{}).era
		want(t, add(era), "behind")
		want(t, b.count(), "unknown")
		want(t, add(next), "ok", "1")
		want(t, add(""), "ok", "2")
	})
}

func TestRequestIsRecordedOnlyWhereTheCounterIsInOrder(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", counterKeys[0], "60")
		later(b)
		for range 2 {
			want(t, b.incrOnce(1), "behind")
		}
		want(t, b.run(scripts.CounterEra, openKeys[2:], "", hour)[:1], "changed")
		want(t, b.incrOnce(1), "behind") // the era has begun, and the counter was not opened in it
		expect.Equal(t, "EXISTS of the record of a request to a counter that is not in order", b.do("EXISTS", counterKeys[3]).(int64), 0)
		b.at(opening{}, "1060", true)
		want(t, b.incrOnce(1), "ok", "1061")
		later(b)
		want(t, b.incrOnce(1), "again", "1061")
		b.do("FLUSHALL")
		want(t, b.incrOnce(1), "behind")
	})
}
