package scripts_test

import (
	"cmp"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/scripts"
)

// opening is what a process says of a counter when it is about to add to it.
type opening struct {
	floor, life string
	ends        int64 // 0 = never
	margin      int64 // 0 = 1000
	refuse      bool
	stay        bool
	era         string
	span        int64  // of a hold-off; 0 = an hour
	highest     string // the largest value that may be moved; "" = any
	least       string // "" = the floor
	room        string // the largest value that can be added to; "" = any
}

func (o opening) args() []any {
	ends, what := "", "past"
	if o.ends != 0 {
		ends = fmt.Sprint(o.ends)
	}
	if o.refuse {
		what = "refuse"
	}
	if o.stay {
		what = "stay"
	}
	if o.margin == 0 {
		o.margin = 1000
	}
	if o.span == 0 {
		o.span = hour
	}
	return []any{o.floor, o.life, ends, o.margin, what, o.era, o.span, o.highest, cmp.Or(o.least, o.floor), o.room}
}

// opened is what the answer to one tells.
type opened struct {
	value, life, era string
	left             int64
	moved            bool
}

func (b *box) open(o opening) []string {
	b.Helper()
	return b.run(scripts.CounterOpen, openKeys, o.args()...)
}

// opens opens a counter that is to be in order afterwards.
func (b *box) opens(o opening) opened {
	b.Helper()
	reply := b.open(o)
	word(b, reply, "ok", 7)
	between(b, "now", number(b, reply[5]), b.now()-slack, b.now())
	return opened{reply[1], reply[2], reply[3], number(b, reply[4]), reply[6] == "1"}
}

// at fails the test unless a counter was opened at that value, and moved or not.
func (b *box) at(o opening, value string, moved bool) opened {
	b.Helper()
	got := b.opens(o)
	if got.value != value || got.moved != moved {
		b.Fatalf("%+v: got %+v, want %q, moved %v", o, got, value, moved)
	}
	return got
}

// heldOff fails the test unless a counter is not opened yet.
func (b *box) heldOff(o opening) {
	b.Helper()
	reply := b.open(o)
	word(b, reply, "hold-off", 2)
	between(b, "the time left of the hold-off", number(b, reply[1]), 1, number(b, fmt.Sprint(o.args()[6])))
}

// later has another incarnation hold the state.
func later(b *box) {
	b.Helper()
	if b.do("EXISTS", openKeys[2]) == int64(0) {
		b.begin()
	}
	marker := strings.Fields(b.do("GET", openKeys[2]).(string))
	marker[0] = "before"
	b.do("SET", openKeys[2], strings.Join(marker, " "))
}

// soonOver makes a hold-off that has begun end now.
func (b *box) soonOver() {
	b.Helper()
	marker := strings.Fields(b.do("GET", openKeys[2]).(string))
	if len(marker) != 6 || number(b, marker[2]) <= b.now() {
		b.Fatalf("the marker is %q", marker)
	}
	marker[2] = "0"
	b.do("SET", openKeys[2], strings.Join(marker, " "))
}

func TestCounterInOrderIsOpenedAsItIs(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.at(opening{}, "", false)
		if first.life != "0" || first.left != -1 {
			t.Errorf("a counter that is not there is opened as %+v, want life 0 and no end", first)
		}
		b.do("SET", counterKeys[0], "9007199254740993")
		before := b.look(openKeys...)
		for _, o := range []opening{
			{}, {era: first.era}, {floor: "9007199254740993", life: "0", era: first.era}, {floor: "9007199254740992", life: "0"}, {floor: "-5", life: "0", refuse: true},
		} {
			expect.Equal(t, fmt.Sprintf("counter_open with %+v", o), b.at(o, "9007199254740993", false), opened{"9007199254740993", "0", first.era, -1, false})
		}
		b.same(before)
		expect.Equal(t, "EXISTS of the record of a counter in order", b.do("EXISTS", openKeys[1]).(int64), 0)
	})
}

func TestCounterBehindWhatWasSeenMovesByTheMargin(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		for _, row := range []struct {
			value, floor string
			margin       int64
			to           string
		}{
			{"", "100", 1000, "1100"}, {"99", "100", 1, "101"}, {"5", "9007199254740993", 1000, "9007199254741993"}, {"-10", "-9", 5, "-4"}, {"", "1", 1, "2"},
			{"-9223372036854775808", "9223372036854775806", 1, "9223372036854775807"}, {"9007199254740992", "9007199254740993", 1, "9007199254740994"},
		} {
			b.do("DEL", openKeys[0], openKeys[1])
			if row.value != "" {
				b.do("SET", openKeys[0], row.value)
			}
			before := b.look(openKeys...)
			reply := b.open(opening{floor: row.floor, life: "0", margin: row.margin, refuse: true})
			if reply[0] != "behind" || reply[1] != row.value || reply[2] != "0" || len(reply) != 5 {
				t.Errorf("counter_open with %+v, refusing: got %q, want behind at %q in life 0", row, reply, row.value)
			}
			b.same(before)
			if reply := b.open(opening{floor: row.floor, life: "0", margin: row.margin, highest: less(row.floor)}); reply[0] != "behind" || reply[1] != row.value {
				t.Errorf("counter_open with %+v, where at most one less may be moved: got %q, want behind at %q", row, reply, row.value)
			}
			full := opening{floor: row.floor, life: "0", margin: row.margin, highest: "0", room: less(row.floor)}
			want(t, b.open(full), "limit") // which no operator can help
			b.same(before)
			b.at(opening{floor: row.floor, life: "0", margin: row.margin, highest: row.floor, room: row.floor}, row.to, true)
			b.at(opening{floor: row.to, life: "0", margin: row.margin}, row.to, false)
			want(t, b.count(), "ok", row.to)
		}
		b.do("DEL", openKeys[0])
		// a process that has seen little does not move it back to there
		b.at(opening{floor: "5", life: "0"}, "9007199254741994", true)
		b.do("DEL", openKeys[0], openKeys[1])
		b.at(opening{floor: "-1", life: "0"}, "", false) // none yet is 0
	})
}

func TestCounterThatStaysGoesOnFromTheLargerOfBoth(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.at(opening{floor: "5", life: "0", stay: true, highest: "0"}, "5", true)
		b.at(opening{floor: "5", life: "0"}, "5", false) // which is in order now
		later(b)
		b.at(opening{floor: "3", life: "0", stay: true}, "5", true)
		b.at(opening{floor: "5", life: "0"}, "5", false)
	})
}

func TestCounterOfAnotherIncarnationMovesOnce(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		era := b.opens(opening{}).era
		b.do("SET", counterKeys[0], "60")
		later(b)
		before := b.look(openKeys[:2]...)
		reply := b.open(opening{refuse: true})
		want(t, reply[:3], "behind", "60", "0")
		if reply[3] == era {
			t.Errorf("another incarnation has the era %s as well", era)
		}
		b.same(before)
		first := b.at(opening{era: era}, "1060", true)
		if number(t, first.era) <= number(t, era) {
			t.Errorf("the era %s follows %s", first.era, era)
		}
		expect.Equal(t, "the era of the counter opened again", b.at(opening{era: era}, "1060", false).era, first.era)
		b.at(opening{floor: "50", life: "0", era: first.era}, "1060", false)
		later(b)
		b.at(opening{floor: "5000", life: "0"}, "6000", true) // beyond the larger of both
		later(b)
		b.at(opening{floor: "5000", life: "0"}, "7000", true)
	})
}

func TestCounterThatBeginsInALaterEraIsNotMoved(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		later(b)
		era := b.at(opening{}, "", false).era
		want(t, b.incr(1), "ok", "1")
		b.at(opening{}, "1", false)
		b.at(opening{floor: "1", life: "0", era: era}, "1", false)
		b.do("DEL", openKeys[1])
		b.at(opening{refuse: false, floor: "1", life: "0"}, "1001", true) // whose record is lost
	})
}

func TestCounterThatCanNotMoveIsRefusedAndStays(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", openKeys[0], "9223372036854775000")
		later(b)
		before := b.look(openKeys[:2]...)
		for range 2 {
			want(t, b.open(opening{}), "overflow")
			b.same(before)
		}
		b.at(opening{margin: 807}, "9223372036854775807", true)
		b.do("SET", openKeys[0], "1")
		want(t, b.open(opening{floor: "9223372036854775807", life: "0", margin: 1}), "overflow")
		for _, text := range []string{"abc", "1.5", "9223372036854775808"} {
			b.do("SET", openKeys[0], text)
			before := b.look(openKeys...)
			want(t, b.open(opening{}), "not-an-integer")
			want(t, b.open(opening{floor: "5", life: "0"}), "not-an-integer")
			b.same(before)
		}
	})
}

func TestHoldOffTakesInWhatEachHasSeen(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		era := b.opens(opening{}).era
		b.do("SET", openKeys[0], "90")
		b.do("FLUSHALL")
		if reply := b.run(scripts.CounterEra, openKeys[2:], era, hour); reply[0] != "changed" || number(t, reply[2]) < hour-slack {
			t.Fatalf("counter_era after everything was lost: got %q, want changed, and about an hour to wait", reply)
		}
		for i, o := range []opening{
			{era: era}, {floor: "100", life: "0", era: era}, {floor: "99", life: "0", era: era}, {floor: "9007199254740993", life: "0", era: era},
			{floor: "9007199254740992", life: "0", era: era}, {floor: "-3", life: "0"}, {},
		} {
			o.refuse = i%2 == 1 // those who refuse have seen something as well
			b.heldOff(o)
			want(t, b.count(), "unknown") // INCRBY must not find there what may not be all
		}
		b.soonOver()
		before := b.look(openKeys[:2]...)
		if reply := b.open(opening{refuse: true}); reply[0] != "behind" || reply[1] != "" {
			t.Errorf("opened by one that has seen nothing, and refuses: got %q, want behind at no value", reply)
		}
		b.same(before)
		b.at(opening{}, "9007199254741993", true)
		b.at(opening{floor: "9007199254740993", life: "0"}, "9007199254741993", false)
	})
}

func TestHoldOffIsOnlyForALossOfEverything(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		era := b.opens(opening{}).era
		want(t, b.run(scripts.CounterEra, openKeys[2:], era, hour), "same")
		later(b) // a failover
		reply := b.run(scripts.CounterEra, openKeys[2:], era, hour)
		if reply[0] != "changed" || reply[1] == era || reply[2] != "0" {
			t.Errorf("counter_era in another incarnation: got %q, want changed, an era that is not %s, and no wait", reply, era)
		}
		second := reply[1]
		want(t, b.run(scripts.CounterEra, openKeys[2:], second, hour), "same")
		want(t, b.run(scripts.CounterEra, openKeys[2:], era, hour), "changed", second, "0")

		b.do("FLUSHALL") // and the first to open it is a process that knows nothing
		b.at(opening{}, "", false)
		b.at(opening{}, "", false)
		reply = b.run(scripts.CounterEra, openKeys[2:], second, hour)
		if reply[0] != "changed" || number(t, reply[2]) < hour-slack {
			t.Errorf("counter_era after everything was lost, by one who knew: got %q, want changed, and about an hour to wait", reply)
		}
		b.heldOff(opening{})
		b.heldOff(opening{era: second})
		b.heldOff(opening{era: reply[1]})
	})
}

func TestHoldOffEnds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.heldOff(opening{era: "1", span: 200})
		expect.Eventually(t, "the hold-off of 200 ms ends", func() bool { return b.open(opening{era: "1", span: 200})[0] == "ok" })
		b.at(opening{era: "1"}, "", false) // no process had seen a value
		want(t, b.incr(1), "ok", "1")
		b.at(opening{}, "1", false)
	})
}

func TestHoldOffKeepsLivesAndEnds(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.do("SET", openKeys[0], "7")
		b.heldOff(opening{era: "1", floor: "100", life: "55", ends: b.now() + hour})
		b.heldOff(opening{era: "1", floor: "900", life: "44"}) // of a life that is over
		between(t, "the end of what was said", b.expiry(openKeys[1]), b.now()+hour-slack, b.now()+hour)
		b.soonOver()
		b.do("DEL", openKeys[0])
		got := b.at(opening{}, "1100", true)
		expect.Equal(t, "the life after the hold-off", got.life, "55")
		between(t, "the time left after the hold-off", got.left, hour-2*slack, hour)
		between(t, "the end of the record", b.expiry(openKeys[1]), b.now()+day+hour-2*slack, b.now()+day+hour)
	})
}

func TestCounterSetDuringAHoldOffIsInOrder(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.heldOff(opening{era: "1", floor: "100", life: "0"})
		want(t, b.set(5, 0), "ok", "")
		b.heldOff(opening{era: "1", floor: "100", life: "0"})
		b.soonOver()
		b.at(opening{floor: "100", life: "0", refuse: true}, "5", false)
		b.at(opening{}, "5", false)
	})
}

func TestCounterThatHasExpiredBeginsAgain(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		first := b.at(opening{}, "", false)
		expect.Equal(t, "the time left of a counter that has not begun", first.left, -1)
		want(t, b.count(), "unknown")
		want(t, b.incrWith(hour, ""), "ok", "1")
		between(t, "the counter's end", b.expiry(openKeys[0]), b.now()+hour-slack, b.now()+hour)
		between(t, "the time left of a counter that has begun", b.at(opening{}, "1", false).left, hour-slack, hour)

		b.do("DEL", openKeys[0])
		gone := opening{floor: "100", life: "0", ends: b.now() - 1, refuse: true}
		b.at(gone, "", false)
		want(t, b.incr(2), "ok", "2")
		b.do("PERSIST", openKeys[0]) // a value without a TTL, added as the counter expired
		expect.Equal(t, "the time left of a value that was added without a TTL", b.at(gone, "2", false).left, -1)
		later(b) // and so in another incarnation
		b.do("DEL", openKeys[0])
		b.at(gone, "", false)
	})
}

func TestCounterThatIsLostBeforeItExpiresKeepsItsEnd(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		ends := b.now() + hour
		got := b.at(opening{floor: "100", life: "0", ends: ends}, "1100", true)
		between(t, "what is left", got.left, hour-slack, hour)
		b.do("SET", openKeys[0], "5", "PX", 2*hour) // one that is behind keeps its own
		got = b.at(opening{floor: "1100", life: "0", ends: ends}, "2100", true)
		between(t, "what is left", got.left, 2*hour-slack, 2*hour)
	})
}

func TestRecordEndsWithItsCounter(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		later(b)
		b.at(opening{}, "", false)
		between(t, "the record's end before the counter begins", b.expiry(openKeys[1]), b.now()+day-slack, b.now()+day)
		want(t, b.incr(1), "ok", "1")
		expect.Equal(t, "the end of the record of a counter that stays", b.expiry(openKeys[1]), -1)
		want(t, b.giveEnd(hour), "ok", "2")
		between(t, "the record's end", b.expiry(openKeys[1]), b.now()+day+hour-slack, b.now()+day+hour)
		later(b)
		b.at(opening{}, "1002", true)
		between(t, "the record's end, written again", b.expiry(openKeys[1]), b.now()+day+hour-2*slack, b.now()+day+hour)
	})
}

func TestServerOutOfMemoryIsNoOverflow(t *testing.T) {
	t.Parallel()
	b := serve(t, redistest.Start(t)) // of its own, since it stays without memory
	b.begin()
	b.do("SET", openKeys[0], "5")
	b.do("CONFIG", "SET", "maxmemory", 1)
	_, incrErr := b.try(scripts.CounterIncr, counterKeys[:3], 1, 0, "", "", "", 0, "begin")
	_, openErr := b.try(scripts.CounterOpen, openKeys, opening{floor: "9", life: "0"}.args()...)
	for _, err := range []error{incrErr, openErr} {
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("on a server without memory: got error %v, want one with OOM", err)
		}
	}
}

// less is one less than a number.
func less(text string) string {
	n, _ := new(big.Int).SetString(text, 10)
	return n.Sub(n, big.NewInt(1)).String()
}

// What a process has added to a counter that was below its floor is not what the counter had.
func TestCounterThatOneLiftedIsBehindAllTheSame(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		for _, row := range []struct{ value, floor, least, moved string }{
			{"60", "51", "111", "1060"}, {"40", "51", "111", "1051"}, {"110", "51", "111", "1110"},
			{"9223372036854770000", "9223372036854775807", "9223372036854775807", ""}, {"-7", "-9", "-5", "993"},
		} {
			b.do("SET", openKeys[0], row.value)
			b.do("DEL", openKeys[1])
			o := opening{floor: row.floor, life: "0", least: row.least}
			if row.moved == "" {
				want(t, b.open(o), "overflow")
				continue
			}
			b.at(o, row.moved, true)
		}
		b.do("DEL", openKeys[1])
		b.do("SET", openKeys[0], "111")
		b.at(opening{floor: "51", life: "0", least: "111"}, "111", false)
		b.set("60", 0) // set back on purpose, it has nothing to do with the floor
		b.at(opening{floor: "51", life: "0", least: "111"}, "60", false)
	})
}

// A loss may not be the first of a state: one that was lost with its jump jumped from the same
// values. The later one goes further, by a tenth of the margin for each second.
func TestLaterLossOfOneStateGoesFurther(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.at(opening{}, "", false)
		b.do("SET", openKeys[0], "5")
		// after loses a state of that age, if no second begins meanwhile
		after := func(age int64) (got opened, isExact bool) {
			fields := strings.Fields(b.do("GET", openKeys[2]).(string))
			kept := []any{b.do("GET", openKeys[0]), strings.Join(fields, " ")}
			b.setField(openKeys[2], 0, strings.Repeat("0a", 20))
			b.setField(openKeys[2], 1, "0b")
			lost, second := strings.Fields(b.do("GET", openKeys[2]).(string)), b.now()/1000
			lost[4] = fmt.Sprint(second - age)
			b.do("SET", openKeys[2], strings.Join(lost, " "))
			got = b.opens(opening{})
			isExact = b.now()/1000 == second
			b.do("SET", openKeys[0], kept[0], "KEEPTTL")
			b.do("SET", openKeys[2], kept[1])
			b.do("DEL", openKeys[1])
			return got, isExact
		}
		values := map[string]bool{}
		for _, age := range []int64{0, 13, 23, 1_000_000} {
			got, isExact := after(age)
			for !isExact {
				got, isExact = after(age)
			}
			if !got.moved || values[got.value] {
				t.Errorf("a loss %d s after the state was in use: got %+v, want another value than after the other losses: %v", age, got, values)
			}
			values[got.value] = true
		}
		for _, want := range []string{"1005", "2005", "3005", "8641005"} {
			expect.Equal(t, "a counter at 5 that moves is at "+want, values[want], true)
		}
	})
}
