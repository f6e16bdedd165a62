package scripts_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var (
	counterKeys = []string{"{c}", "{c}:record", "{marker}", "{c}:request"}
	openKeys    = []string{"{c}", "{c}:record", "{marker}"}
)

// incr adds to the counter without a request id.
// incrBy runs counter_incr, and returns its reply without the counter's TTL and the time.
func (b *box) incrBy(keys []string, args ...any) []string {
	b.Helper()
	reply := b.run(scripts.CounterIncr, keys, append(args, "begin")...)
	if reply[0] == "ok" || reply[0] == "again" {
		return reply[:2]
	}
	return reply
}

func (b *box) incr(by any) []string {
	b.Helper()
	return b.incrBy(counterKeys[:3], by, 0, "", "", "", 0)
}

// begin has the slot's first era begin.
func (b *box) begin() {
	b.Helper()
	word(b, b.run(scripts.CounterEra, openKeys[2:], "", minute), "changed", 2)
}

// incrWith adds 1 to a counter, which gets a TTL if it begins.
func (b *box) incrWith(ttl int64, floor string) []string {
	b.Helper()
	return b.incrBy(counterKeys[:3], 1, 0, floor, "", "", ttl)
}

// giveEnd adds 1 to a counter, and gives it a TTL also if it is there without one.
func (b *box) giveEnd(ttl int64) []string {
	b.Helper()
	return b.run(scripts.CounterIncr, counterKeys[:3], 1, 0, "", "", "", ttl, "give")[:2]
}

// incrOnce adds to the counter with a request id that is kept for an hour.
func (b *box) incrOnce(by any) []string {
	b.Helper()
	return b.incrBy(counterKeys, by, 3_600_000, "", "", "", 0)
}

func (b *box) count() []string {
	b.Helper()
	return b.run(scripts.CounterGet, counterKeys[:1])
}

func TestCounterAddsAndTellsTheSum(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.count(), "unknown")
		b.begin()
		want(t, b.incr(1), "ok", "1")
		want(t, b.incr(1), "ok", "2")
		want(t, b.incr(1_000_000), "ok", "1000002")
		want(t, b.count(), "ok", "1000002")
		expect.Equal(t, "the counter's end", b.expiry(counterKeys[0]), -1)
		expect.Equal(t, "the kind of a request's record, without a request id", b.look(counterKeys[3])[counterKeys[3]].kind, "none")
	})
}

func TestCounterKeepsEveryDigit(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		for _, row := range []struct{ from, by, word, to string }{
			{"9007199254740991", "1", "ok", "9007199254740992"},
			{"9007199254740992", "1", "ok", "9007199254740993"},
			{"9007199254740993", "1", "ok", "9007199254740994"},
			{"9007199254740993", "1000000", "ok", "9007199255740993"},
			{"9223372036854775806", "1", "ok", "9223372036854775807"},
			{"9223372036853775807", "1000000", "ok", "9223372036854775807"},
			{"0", "9223372036854775807", "ok", "9223372036854775807"},
			{"-9223372036854775808", "1", "ok", "-9223372036854775807"},
			{"-1", "1", "ok", "0"},
			{"9223372036854775807", "1", "overflow", ""},
			{"9223372036854775806", "2", "overflow", ""},
			{"9223372036853775808", "1000000", "overflow", ""},
			{"1", "9223372036854775807", "overflow", ""},
		} {
			t.Run(row.from+" plus "+row.by, func(t *testing.T) {
				b := b.on(t)
				b.do("SET", counterKeys[0], row.from)
				b.do("DEL", counterKeys[3])
				before := b.look(counterKeys...)
				if row.word != "ok" {
					want(t, b.incr(row.by), row.word)
					want(t, b.incrOnce(row.by), row.word)
					b.same(before)
					want(t, b.count(), "ok", row.from)
					return
				}
				want(t, b.incrOnce(row.by), "ok", row.to)
				want(t, b.count(), "ok", row.to)
				b.do("SET", counterKeys[0], "7") // the record must not depend on it
				want(t, b.incrOnce(row.by), "again", row.to)
			})
		}
	})
}

func TestCounterRefusesWhatIsNoInteger(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		values := []string{"abc", "1.5", "1e3", " 1", "1 ", "--1", "0x10", "9223372036854775808", "-9223372036854775809", strings.Repeat("1", 40)}
		if b.kind == "redis" { // miniredis takes these for integers; no script of ours writes them
			values = append(values, "007", "+1", "", "-0")
		}
		for _, value := range values {
			t.Run(strconv.Quote(value), func(t *testing.T) {
				b := b.on(t)
				b.do("SET", counterKeys[0], value)
				before := b.look(counterKeys...)
				want(t, b.incr(1), "not-an-integer")
				want(t, b.incrOnce(1), "not-an-integer")
				want(t, b.count(), "ok", value) // whether it is one is for the caller to judge
				b.same(before)
			})
		}
	})
}

func TestCounterOfAnotherKindIsRefused(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		for _, fill := range [][]any{{"RPUSH", counterKeys[0], "1"}, {"HSET", counterKeys[0], "a", "1"}, {"ZADD", counterKeys[0], "1", "a"}, {"SADD", counterKeys[0], "1"}} {
			t.Run(fill[0].(string), func(t *testing.T) {
				b := b.on(t)
				b.do("DEL", counterKeys[0])
				b.do(fill...)
				before := b.look(counterKeys[3])
				want(t, b.count(), "not-an-integer")
				want(t, b.incr(1), "not-an-integer")
				want(t, b.incrOnce(1), "not-an-integer")
				b.same(before)
			})
		}
	})
}

func TestRepeatedRequestGetsItsFirstValueAndAddsNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		want(t, b.incrOnce(5), "ok", "5")
		between(t, "the end of the record", b.expiry(counterKeys[3]), b.now()+3_500_000, b.now()+3_600_000+slack)
		want(t, b.incr(1), "ok", "6")
		counter, record := b.look(counterKeys[0]), b.look(counterKeys[3])[counterKeys[3]]
		for range 3 {
			want(t, b.incrOnce(5), "again", "5") // and keeps the record for as long again
		}
		before := b.look(counterKeys...)
		want(t, b.incrOnce(6), "mismatch")
		want(t, b.incrOnce(4), "mismatch")
		b.same(before)
		b.same(counter)
		if is := before[counterKeys[3]]; is.content != record.content || is.expiry < record.expiry-slack {
			t.Errorf("the record was %+v and is %+v", record, is)
		}
		want(t, b.incr(5), "ok", "11") // without the request id it is another call
	})
}

func TestRequestIsForgottenAfterItsRetention(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		want(t, b.incrBy(counterKeys, 1, 150, "", "", "", 0), "ok", "1")
		expect.Eventually(t, "the request is forgotten after 150 ms", func() bool { return b.expiry(counterKeys[3]) == -2 })
		want(t, b.incrBy(counterKeys, 1, 150, "", "", "", 0), "ok", "2")
	})
}

func TestRefusedRequestIsNotRemembered(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", counterKeys[0], "9223372036854775807")
		want(t, b.incrOnce(1), "overflow")
		b.do("SET", counterKeys[0], "abc")
		want(t, b.incrOnce(1), "not-an-integer")
		b.do("SET", counterKeys[0], "41")
		want(t, b.incrOnce(1), "ok", "42")
		want(t, b.incrOnce(1), "again", "42")
	})
}

func TestReadingACounterChangesNothing(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.do("SET", counterKeys[0], "9007199254740993", "PX", 3_600_000)
		before := b.look(counterKeys...)
		want(t, b.count(), "ok", "9007199254740993")
		b.same(before)
	})
}

// A limit is for values that people read, which are never below 0.
func TestCounterBelowZeroIsRefusedWithALimit(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", counterKeys[0], "-2")
		before := b.look(counterKeys...)
		want(t, b.incrBy(counterKeys, 5, hour, "", "9223372036854775807", "", 0), "negative")
		b.same(before)
		b.do("SET", counterKeys[0], "-1")
		want(t, b.incrBy(counterKeys, 1, hour, "", "9223372036854775807", "", 0), "ok", "0")
	})
}

func TestCounterBeginsTogetherWithItsTTL(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		want(t, b.incrWith(hour, "0"), "behind") // it was there, and has gone: perhaps it was lost
		want(t, b.incrBy(counterKeys[:3], 6, 0, "", "5", "", hour), "limit")
		want(t, b.count(), "unknown")
		want(t, b.incrWith(hour, ""), "ok", "1")
		ends := b.expiry(counterKeys[0])
		between(t, "the counter's end", ends, b.now()+hour-slack, b.now()+hour)
		want(t, b.incrWith(2*hour, "1"), "ok", "2")
		want(t, b.incrWith(2*hour, ""), "ok", "3")
		between(t, "the counter's end, after two other TTLs", b.expiry(counterKeys[0]), ends-slack, ends+slack)

		want(t, b.giveEnd(2*hour), "ok", "4")
		between(t, "the counter's end, after a TTL that is given", b.expiry(counterKeys[0]), ends-slack, ends+slack)
	})
}

// A counter that has begun without a TTL has no end, unless it is given one on purpose.
func TestCounterWithoutAnEndRefusesATTL(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", counterKeys[0], "9007199254740993")
		before := b.look(counterKeys...)
		want(t, b.incrWith(hour, ""), "permanent", "9007199254740993")
		want(t, b.incrWith(hour, "5"), "permanent", "9007199254740993")
		want(t, b.incrWith(hour, "9007199254740994"), "behind") // first it has to be in order
		want(t, b.incrBy(counterKeys, 1, hour, "", "7", "", hour), "permanent", "9007199254740993")
		want(t, b.run(scripts.CounterIncr, counterKeys[:3], 1, 0, "", "7", "", hour, "give"), "limit")
		b.same(before)
		want(t, b.incrWith(0, ""), "ok", "9007199254740994")
		expect.Equal(t, "the counter's end", b.expiry(counterKeys[0]), -1)
		want(t, b.incrBy(counterKeys, 1, hour, "", "", "", 0), "ok", "9007199254740995")
		// a repeat adds nothing
		want(t, b.incrBy(counterKeys, 1, hour, "", "", "", hour), "again", "9007199254740995")

		want(t, b.giveEnd(hour), "ok", "9007199254740996")
		between(t, "the counter's end", b.expiry(counterKeys[0]), b.now()+hour-slack, b.now()+hour)
		record := strings.Fields(b.do("GET", openKeys[1]).(string))
		between(t, "the end that the record has", number(t, record[3]), b.now()+hour-slack, b.now()+hour)
	})
}

// The record of a counter in a later era keeps what it has when the counter is given an end.
func TestRecordOfACounterThatIsGivenAnEndKeepsItsLife(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		b.begin()
		b.do("SET", counterKeys[0], "100")
		want(t, b.set("50", 0), "ok", "100")
		before := strings.Fields(b.do("GET", openKeys[1]).(string))
		want(t, b.giveEnd(hour), "ok", "51")
		after := strings.Fields(b.do("GET", openKeys[1]).(string))
		expect.Equal(t, "the record's era and life", after[:2], before[:2])
	})
}

// In a later era a counter has a record, which may end before the counter begins.
func TestRecordOfACounterThatBeginsEndsWithIt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		later(b)
		b.at(opening{}, "", false)
		want(t, b.incrWith(hour, ""), "ok", "1")
		between(t, "the record's end", b.expiry(openKeys[1]), b.now()+day+hour-slack, b.now()+day+hour)

		b.do("DEL", counterKeys[0])
		record := strings.Fields(b.do("GET", openKeys[1]).(string))
		between(t, "the end that the record has", number(t, record[3]), b.now()+hour-slack, b.now()+hour)
		record[3] = "1" // it has ended since a process found none
		b.do("SET", openKeys[1], strings.Join(record, " "))
		want(t, b.incrWith(hour, ""), "behind")
		b.at(opening{}, "", false)
		want(t, b.incr(1), "ok", "1")
		expect.Equal(t, "the record's end", b.expiry(openKeys[1]), -1)
	})
}
