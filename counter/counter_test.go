package counter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

func TestMain(m *testing.M) {
	redisstore.LogTo(slog.New(slog.DiscardHandler)) // stores that are away are part of these tests
	goleak.VerifyTestMain(m)
}

// counters are those of a store, and a way around them.
type counters struct {
	*counter.Counters
	store *redisstore.Store
}

func TestCounters(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		c := counters{counter.New(store, counter.Config{}), store}
		defer c.Close()
		t.Run("begin at 1 and hand out adjoining ranges", c.ranges)
		t.Run("refuse a by out of bounds", c.badBy)
		t.Run("leave what is no integer as it is", c.noInteger)
		t.Run("never overflow", c.overflow)
		t.Run("keep every digit", c.digits)
		t.Run("are apart by name", c.apart)
		t.Run("answer a repeated request with its first value", c.repeat)
		t.Run("refuse a repeated request with another by", c.otherBy)
		t.Run("do not remember a request that was refused", c.refusedRequest)
		t.Run("take request ids of any content", c.anyID)
		t.Run("add nothing for a context that has ended", c.ended)
		t.Run("hand out no value twice to many at once", c.manyAtOnce)
		t.Run("add once for many at once with one request id", c.oneRequestManyTimes)
	})
}

// put gives a counter's key a value that no counter writes, in a slot that is in use.
func (c counters) put(t *testing.T, key, command string, value ...any) {
	t.Helper()
	if _, err := onstore.Run(t.Context(), c.store, scripts.CounterEra, []string{onstore.SlotKey(c.store, "counters",
		"marker", key)}, "", 1000); err != nil {
		t.Fatalf("running a script: got error %v, want none", err)
	}
	put := scripts.New("test_put",
		"redis.call('DEL', KEYS[1]) if ARGV[1] then redis.call('"+command+"', KEYS[1], unpack(ARGV)) end return {'ok'}")
	if _, err := onstore.Run(t.Context(), c.store, put, []string{onstore.Key(c.store, "counter", key)}, value...); err != nil {
		t.Fatalf("running a script: got error %v, want none", err)
	}
}

func (c counters) incr(t *testing.T, key string, by int64, requestID string) counter.Range {
	t.Helper()
	got, err := c.Add(t.Context(), key, counter.Request{By: by, RequestID: requestID})
	expect.NoError(t, fmt.Sprintf("incr %s by %d", key, by), err)
	return got
}

func (c counters) want(t *testing.T, key string, value int64) {
	t.Helper()
	if got, err := c.Get(t.Context(), key); err != nil || got != value {
		t.Errorf("%s is %d, %v; want %d", key, got, err, value)
	}
}

// wantRefused checks the error of a call that has done nothing.
func wantRefused(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, redisstore.ErrRefused) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v of class refused", err, want)
	}
}

func (c counters) ranges(t *testing.T) {
	if _, err := c.Get(t.Context(), "ranges"); !errors.Is(err, counter.ErrNotFound) {
		t.Errorf("a counter that was never used: %v", err)
	}
	last := int64(0)
	for _, by := range []int64{1, 1, 2, 10, 999, counter.MaxBy, 1} {
		got := c.incr(t, "ranges", by, "")
		expect.Equal(t, fmt.Sprintf("by %d after %d", by, last), got, counter.Range{First: last + 1, Last: last + by})
		last = got.Last
		c.want(t, "ranges", last)
	}
}

func (c counters) badBy(t *testing.T) {
	for _, by := range []int64{-1, counter.MaxBy + 1, math.MaxInt64, math.MinInt64} {
		got, err := c.Add(t.Context(), "bad-by", counter.Request{By: by, RequestID: "id"})
		wantRefused(t, err, counter.ErrInvalid)
		expect.Equal(t, fmt.Sprintf("range of a call by %d", by), got, counter.Range{})
	}
	_, err := c.Get(t.Context(), "bad-by")
	wantRefused(t, err, counter.ErrNotFound)
}

func (c counters) noInteger(t *testing.T) {
	values := map[string][]any{
		"text": {"hello"}, "float": {"1.5"}, "space": {" 1"}, "wide": {"9223372036854775808"}, "low": {"-9223372036854775809"}, "empty": {""}, "exponent": {"1e3"}, "NUL": {"1\x00"},
	}
	if c.store.Mode() != redisstore.ModeEmbedded { // miniredis takes these for integers
		values["zeros"], values["plus"], values["minus-zero"] = []any{"007"}, []any{"+1"}, []any{"-0"}
	}
	for name, value := range values {
		c.put(t, name, "SET", value...)
	}
	c.put(t, "hash", "HSET", "field", "1")
	c.put(t, "sorted-set", "ZADD", "1", "1")
	values["hash"], values["sorted-set"] = nil, nil
	for key := range values {
		for range 2 {
			_, err := c.Add(t.Context(), key, counter.Request{By: 1})
			wantRefused(t, err, counter.ErrNotAnInteger)
			_, err = c.Add(t.Context(), key, counter.Request{By: 2, RequestID: "id"})
			wantRefused(t, err, counter.ErrNotAnInteger)
			_, err = c.Get(t.Context(), key)
			wantRefused(t, err, counter.ErrNotAnInteger)
		}
	}
}

func (c counters) overflow(t *testing.T) {
	c.put(t, "full", "SET", "9223372036854775806")
	expect.Equal(t, "Incr to the greatest value", c.incr(t, "full", 1, ""), counter.Range{First: math.MaxInt64, Last: math.MaxInt64})
	for _, by := range []int64{1, counter.MaxBy} {
		_, err := c.Add(t.Context(), "full", counter.Request{By: by})
		wantRefused(t, err, counter.ErrOverflow)
	}
	c.want(t, "full", math.MaxInt64)
	c.put(t, "nearly", "SET", "9223372036854775800")
	_, err := c.Add(t.Context(), "nearly", counter.Request{By: 8, RequestID: "id"})
	wantRefused(t, err, counter.ErrOverflow)
	expect.Equal(t, "Add up to the greatest value", c.incr(t, "nearly", 7, "id"), counter.Range{First: 9223372036854775801, Last: math.MaxInt64})
}

// A Lua number, like a JSON number in many languages, has 53 bits.
func (c counters) digits(t *testing.T) {
	for start, next := range map[string]int64{
		"9007199254740992": 9007199254740993, "9007199254740993": 9007199254740994, "999999999999999999": 1000000000000000000,
		"-5": -4, "-1": 0, "0": 1, "-9223372036854775808": math.MinInt64 + 1,
	} {
		key := "digits" + start
		c.put(t, key, "SET", start)
		if got := c.incr(t, key, 1, ""); got.Last != next || got.First != next {
			t.Errorf("%s by 1: %+v", start, got)
		}
		c.want(t, key, next)
	}
	c.put(t, "digits", "SET", "9007199254740993")
	first := c.incr(t, "digits", 1, "id")
	if again := c.incr(t, "digits", 1, "id"); again != first || again.Last != 9007199254740994 {
		t.Errorf("%+v, then %+v", first, again)
	}
}

func (c counters) apart(t *testing.T) {
	names := []string{"a", "A", "a:b", "a:", ":a", "a:request", "a.b", "~", "@", "..", strings.Repeat("n", 200)}
	for i, name := range names {
		c.incr(t, name, int64(i+1), "id")
	}
	for i, name := range names {
		c.want(t, name, int64(i+1))
	}
}

func (c counters) repeat(t *testing.T) {
	first := c.incr(t, "repeat", 3, "first")
	second := c.incr(t, "repeat", 3, "second")
	c.incr(t, "repeat", 5, "")
	expect.Equal(t, "the first request", first, counter.Range{First: 1, Last: 3})
	expect.Equal(t, "the second request", second, counter.Range{First: 4, Last: 6})
	for range 3 {
		expect.Equal(t, "the first request again", c.incr(t, "repeat", 3, "first"), first)
		expect.Equal(t, "the second request again", c.incr(t, "repeat", 3, "second"), second)
	}
	expect.Equal(t, "the same id for another counter", c.incr(t, "another", 3, "first").Last, 3)
	c.want(t, "repeat", 11)
}

func (c counters) otherBy(t *testing.T) {
	first := c.incr(t, "other-by", 3, "id")
	for _, by := range []int64{1, 2, 4, 33, counter.MaxBy} {
		_, err := c.Add(t.Context(), "other-by", counter.Request{By: by, RequestID: "id"})
		wantRefused(t, err, counter.ErrOtherRequest)
	}
	expect.Equal(t, "the request sent again", c.incr(t, "other-by", 3, "id"), first)
	c.want(t, "other-by", 3)
}

func (c counters) refusedRequest(t *testing.T) {
	c.put(t, "mended", "SET", "broken")
	_, err := c.Add(t.Context(), "mended", counter.Request{By: 1, RequestID: "id"})
	wantRefused(t, err, counter.ErrNotAnInteger)
	c.put(t, "mended", "SET", "41")
	expect.Equal(t, "the request that was refused before", c.incr(t, "mended", 1, "id").Last, 42)
	c.put(t, "mended", "DEL")
	expect.Equal(t, "a request that was answered, after its counter was removed", c.incr(t, "mended", 1, "id").Last, 42)
}

func (c counters) anyID(t *testing.T) {
	ids := []string{" ", "\x00", "{}", "a:b", "é", "\xff", "a", "A", strings.Repeat("x", 100_000), strings.Repeat("x", 100_001)}
	seen := map[int64]bool{}
	for range 2 {
		for _, id := range ids {
			seen[c.incr(t, "ids", 1, id).Last] = true
		}
	}
	expect.Equal(t, "values of all ids", len(seen), len(ids))
	c.want(t, "ids", int64(len(ids)))
}

func (c counters) ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Add(ctx, "ended", counter.Request{By: 1})
	wantRefused(t, err, redisstore.ErrUnavailable)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not say why", err)
	}
	_, err = c.Get(ctx, "ended")
	wantRefused(t, err, context.Canceled)
	_, err = c.Get(t.Context(), "ended")
	wantRefused(t, err, counter.ErrNotFound)
}
