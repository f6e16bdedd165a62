package scripts_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/scripts"
)

var (
	apiKeys = []string{"{keys}"}
	rateKey = []string{"{flow}"}
)

func TestAPIKeysAreAddedOnceListedAndRemoved(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		want(t, b.run(scripts.KeyList, apiKeys), "ok")
		from := b.now() / 1000
		for range 2 {
			want(t, b.run(scripts.KeyAdd, apiKeys, "blue", `{"a": 1}`), "added")
		}
		want(t, b.run(scripts.KeyAdd, apiKeys, "green", ""), "added")
		before := b.look(apiKeys...)
		want(t, b.run(scripts.KeyAdd, apiKeys, "blue", `{"a":2}`), "there")
		b.same(before)
		reply := b.run(scripts.KeyList, apiKeys)
		if len(reply) != 5 {
			t.Fatalf("key_list of two keys: got %q, want ok and four values", reply)
		}
		listed := map[string]string{reply[1]: reply[2], reply[3]: reply[4]}
		second, record, _ := strings.Cut(listed["blue"], " ")
		between(t, "added at", number(t, second), from, b.now()/1000)
		expect.Equal(t, "the record of the key blue", record, `{"a": 1}`)
		_, record, _ = strings.Cut(listed["green"], " ")
		expect.Equal(t, "the record of the key green", record, "")
		want(t, b.run(scripts.KeyRemove, apiKeys, "blue"), "removed")
		before = b.look(apiKeys...)
		want(t, b.run(scripts.KeyRemove, apiKeys, "blue"), "none")
		b.same(before)
		want(t, b.run(scripts.KeyList, apiKeys), "ok", "green", listed["green"])
	})
}

// nanos reads a clock of a reply, in milliseconds.
func nanos(t *testing.T, text string) int64 {
	t.Helper()
	n := number(t, text)
	if len(text) != 19 {
		t.Errorf("%s is no time in nanoseconds", text)
	}
	return n / 1_000_000
}

func TestFlowIsSwappedByWhoKnowsIt(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		from := b.now()
		reply := b.run(scripts.RateGet, rateKey)
		word(b, reply, "ok", 2)
		expect.Equal(t, "rate_get of an unknown flow", reply[1], "-1")
		between(t, "now", nanos(t, reply[2]), from, b.now())

		// beyond 2^53, and apart by one
		const first, second = "1795276418192343123", "1795276418192343124"
		reply = b.run(scripts.RateSwap, rateKey, "-1", first, hour)
		word(b, reply, "done", 1)
		between(t, "now", nanos(t, reply[1]), from, b.now())
		if left := b.do("PTTL", rateKey[0]).(int64); left < hour-60_000 || left > hour {
			t.Errorf("kept for %d ms", left)
		}
		before := b.look(rateKey...)
		for _, stale := range []string{"-1", second, strconv.Itoa(0)} {
			reply = b.run(scripts.RateSwap, rateKey, stale, second, hour)
			word(b, reply, "other", 2)
			expect.Equal(t, "rate_swap from "+stale, reply[1], first)
			between(t, "now", nanos(t, reply[2]), from, b.now())
		}
		b.same(before)
		word(b, b.run(scripts.RateSwap, rateKey, first, second, 100), "done", 1)
		expect.Eventually(t, "the flow is forgotten after 100 ms", func() bool { return b.run(scripts.RateGet, rateKey)[1] == "-1" })
		word(b, b.run(scripts.RateSwap, rateKey, second, first, hour), "other", 2)
	})
}
