package counter_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

func TestCountersAreSetRemovedAndListed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		c := counters{counter.New(store, counter.Config{}), store}
		defer c.Close()
		other := counters{counter.New(store, counter.Config{}), store} // another process
		defer other.Close()
		t.Run("listed by pages", c.pages)
		t.Run("set, forward and back", func(t *testing.T) { c.setAnywhere(t, other) })
		t.Run("set back on purpose only", c.setBack)
		t.Run("set on a condition", c.setOnCondition)
		t.Run("set after a deletion by hand", func(t *testing.T) { c.setAfterDeletion(t, other) })
		t.Run("removed", func(t *testing.T) { c.reset(t, other) })
		t.Run("kept below a limit", c.limit)
		t.Run("kept from being negative by a limit", c.belowZero)
		t.Run("refuse what is out of bounds", c.badAdmin)
	})
}

func (c counters) mustSet(t *testing.T, key string, value int64, ttl time.Duration) {
	t.Helper()
	expect.NoError(t, "Set", c.Set(t.Context(), key, value, counter.SetOptions{TTL: ttl, Back: true}))
}

func (c counters) setAnywhere(t *testing.T, other counters) {
	for _, value := range []int64{5, 1000, 7, 0, -3, 9007199254740993, math.MinInt64, 2} {
		c.mustSet(t, "set", value, 0)
		c.want(t, "set", value)
		c.gets(t, "set", value+1)
		got, err := other.Incr(t.Context(), "set")
		if err != nil || got < value+2 || got > value+3 { // it may have to learn of the value first
			t.Errorf("another process: %d, %v after %d", got, err, value+1)
		}
		c.gets(t, "set", got+1)
	}
	c.put(t, "mended", "SET", "no integer")
	c.mustSet(t, "mended", 41, 0)
	c.gets(t, "mended", 42)
	c.mustSet(t, "full", math.MaxInt64, 0)
	_, err := c.Incr(t.Context(), "full")
	wantRefused(t, err, counter.ErrOverflow)
}

func (c counters) setBack(t *testing.T) {
	set := func(value int64) error { return c.Set(t.Context(), "back", value, counter.SetOptions{}) }
	expect.NoError(t, "Set of a new counter", set(-5))
	expect.NoError(t, "Set to the same value", set(-5))
	expect.NoError(t, "Set forward", set(41))
	err := set(40)
	wantRefused(t, err, counter.ErrPast)
	if past, is := errors.AsType[*counter.PastError](err); !is || past.At != 41 {
		t.Errorf("Set to 40 of a counter at 41: got %v, want it to say where the counter is", err)
	}
	c.gets(t, "back", 42)
	c.mustSet(t, "back", 7, time.Hour)
	c.gets(t, "back", 8)
	c.put(t, "back", "SET", "no integer")
	wantRefused(t, set(100), counter.ErrNotAnInteger)
}

func (c counters) setOnCondition(t *testing.T) {
	is := func(values ...int64) counter.Condition { return counter.Condition{In: append([]int64{}, values...)} }
	try := func(condition counter.Condition) error {
		return c.Set(t.Context(), "if", 5, counter.SetOptions{Back: true, If: condition})
	}
	for _, condition := range []counter.Condition{{Exists: true}, is(), is(0), {Exists: true, Absent: true}} {
		wantRefused(t, try(condition), counter.ErrCondition)
	}
	wantRefused(t, c.ResetIf(t.Context(), "if", is(5)), counter.ErrNotFound)
	expect.NoError(t, "Set of a counter that is not there", try(counter.Condition{Absent: true, NotIn: []int64{5}}))
	for _, condition := range []counter.Condition{{Absent: true}, is(), is(4, 6, -5, 55), {NotIn: []int64{4, 5}}, {In: []int64{5}, NotIn: []int64{5}}} {
		wantRefused(t, try(condition), counter.ErrCondition)
		wantRefused(t, c.ResetIf(t.Context(), "if", condition), counter.ErrCondition)
	}
	c.want(t, "if", 5)
	for _, condition := range []counter.Condition{{Exists: true}, is(4, 5), {NotIn: []int64{4}}, {Exists: true, In: []int64{5}}} {
		expect.NoError(t, fmt.Sprintf("Set if %+v", condition), try(condition))
	}
	expect.NoError(t, "ResetIf", c.ResetIf(t.Context(), "if", is(5)))
}

func (c counters) setAfterDeletion(t *testing.T, other counters) {
	c.countTo(t, "deleted", 100)
	other.gets(t, "deleted", 101)
	c.put(t, "deleted", "DEL")
	c.mustSet(t, "deleted", 5, 0)
	c.gets(t, "deleted", 6)
	if got, err := other.Incr(t.Context(), "deleted"); err != nil || got > 8 {
		t.Errorf("another process: %d, %v", got, err)
	}
}

func (c counters) reset(t *testing.T, other counters) {
	wantRefused(t, c.Reset(t.Context(), "removed"), counter.ErrNotFound)
	c.put(t, "removed", "SET", "no integer")
	expect.Error(t, "Reset removed", c.Reset(t.Context(), "removed"), nil)
	c.countTo(t, "removed", 100)
	other.gets(t, "removed", 101)
	expect.NoError(t, "Reset removed", c.Reset(t.Context(), "removed"))
	_, err := c.Get(t.Context(), "removed")
	expect.Error(t, "Get of a removed counter", err, counter.ErrNotFound)
	wantRefused(t, c.Reset(t.Context(), "removed"), counter.ErrNotFound)
	expect.Equal(t, "names that are listed", len(c.listed(t, "removed")), 0)
	c.gets(t, "removed", 1)
	if keys := c.listed(t, "removed"); !slices.Equal(keys, []string{"removed"}) {
		t.Errorf("listed: %v", keys)
	}
	if got, err := other.Incr(t.Context(), "removed"); err != nil || got > 3 {
		t.Errorf("another process: %d, %v", got, err)
	}
}

func (c counters) limit(t *testing.T) {
	for i := range int64(3) {
		got, err := c.Add(t.Context(), "limited", counter.Request{Limit: 3})
		expect.Error(t, "Add below the limit", err, nil)
		expect.Equal(t, "Add below the limit", got.Last, i+1)
	}
	for _, id := range []string{"", "id"} {
		_, err := c.Add(t.Context(), "limited", counter.Request{Limit: 3, RequestID: id})
		wantRefused(t, err, counter.ErrLimit)
	}
	c.want(t, "limited", 3)
	// a refusal is not recorded
	expect.Equal(t, "Add without a limit, by the id of a refused request", c.incr(t, "limited", 1, "id").Last, 4)
	_, err := c.Add(t.Context(), "never", counter.Request{By: 5, Limit: 4})
	wantRefused(t, err, counter.ErrLimit)
	_, err = c.Get(t.Context(), "never")
	wantRefused(t, err, counter.ErrNotFound)
}

// A limit is for values that people read: a value below 0 is none of them.
func (c counters) belowZero(t *testing.T) {
	c.mustSet(t, "negative", -3, 0)
	for _, by := range []int64{1, 2, 1000} {
		_, err := c.Add(t.Context(), "negative", counter.Request{By: by, Limit: math.MaxInt64})
		wantRefused(t, err, counter.ErrLimit)
	}
	c.want(t, "negative", -3)
	c.mustSet(t, "negative", -1, 0)
	got, err := c.Add(t.Context(), "negative", counter.Request{By: 2, Limit: math.MaxInt64})
	expect.Error(t, "Add 2 with a limit to a counter at -1", err, nil)
	expect.Equal(t, "Add 2 with a limit to a counter at -1", got, counter.Range{First: 0, Last: 1})
}

func (c counters) badAdmin(t *testing.T) {
	long := strings.Repeat("k", 201)
	for _, key := range []string{"", "a b", "a/b", "é", "\x00", "{a}", long} {
		_, incrErr := c.Incr(t.Context(), key)
		_, getErr := c.Get(t.Context(), key)
		for _, err := range []error{incrErr, getErr, c.Set(t.Context(), key, 1, counter.SetOptions{}), c.Reset(t.Context(), key)} {
			wantRefused(t, err, counter.ErrInvalid)
		}
	}
	for _, ttl := range []time.Duration{-1, 1, counter.MinTTL - 1, counter.MaxTTL + 1} {
		wantRefused(t, c.Set(t.Context(), "bad", 1, counter.SetOptions{TTL: ttl}), counter.ErrInvalid)
		_, err := c.Add(t.Context(), "bad", counter.Request{TTL: ttl})
		wantRefused(t, err, counter.ErrInvalid)
	}
	_, err := c.Add(t.Context(), "bad", counter.Request{Limit: -1})
	wantRefused(t, err, counter.ErrInvalid)
	_, err = c.IncrBy(t.Context(), "bad", 0)
	wantRefused(t, err, counter.ErrInvalid)
	for _, row := range []struct {
		prefix, after string
		n             int
	}{{n: 0}, {n: -1}, {n: 1001}, {"a b", "", 1}, {"", "a b", 1}, {long, "", 1}} {
		_, _, err := c.List(t.Context(), row.prefix, row.after, row.n)
		wantRefused(t, err, counter.ErrInvalid)
	}
	_, err = c.Get(t.Context(), "bad")
	wantRefused(t, err, counter.ErrNotFound)
}

// listed are the keys that begin with a prefix.
func (c counters) listed(t *testing.T, prefix string) (keys []string) {
	t.Helper()
	page, next, err := c.List(t.Context(), prefix, "", 1000)
	if err != nil || next != "" {
		t.Fatalf("List of %q: got error %v and next %q, want the one page", prefix, err, next)
	}
	for _, one := range page {
		keys = append(keys, one.Key)
	}
	return keys
}

func (c counters) pages(t *testing.T) {
	page, next, err := c.List(t.Context(), "", "", 10)
	expect.Error(t, "List of no counters", err, nil)
	expect.Equal(t, "List of no counters", len(page), 0)
	expect.Equal(t, "where a list of no counters goes on", next, "")
	for i := range int64(25) {
		key := fmt.Sprintf("p:%02d", i)
		switch i % 3 {
		case 0:
			c.mustSet(t, key, i, 0)
		case 1:
			c.incr(t, key, i, "")
		case 2:
			c.incr(t, key, i, "id")
		}
	}
	c.incr(t, "q", 1, "")
	c.put(t, "p:07", "SET", "no integer")
	for i := 10; i < 16; i++ { // more than a page is gone
		c.put(t, fmt.Sprintf("p:%02d", i), "DEL")
	}
	var got []string
	for cursor, more := "", true; more; more = cursor != "" {
		page, next, err := c.List(t.Context(), "p:", cursor, 5)
		if err != nil || len(page) > 5 || len(page) == 0 && next != "" {
			t.Fatalf("List of 5 after %q: got %v, next %q, %v, want up to 5, and none only at the end", cursor, page, next, err)
		}
		cursor = next
		for _, one := range page {
			got = append(got, fmt.Sprint(one.Key, " ", one.Value, " ", one.Err))
		}
	}
	want := []string{"p:07 0 " + counter.ErrNotAnInteger.Error()}
	for i := range 25 {
		if i != 7 && (i < 10 || i > 15) {
			want = append(want, fmt.Sprintf("p:%02d %d <nil>", i, i))
		}
	}
	slices.Sort(want)
	expect.Equal(t, "List in pages of 5", got, want)
	expect.Equal(t, "List of p:1", c.listed(t, "p:1"), []string{"p:16", "p:17", "p:18", "p:19"})
}

func TestProcessKnowsABoundedNumberOfKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := process(t, server.URL(), func(_ *redisstore.Config, c *counter.Config) { c.MaxKeys = 100 })
	// so that the last one makes it too many, if all or one are forgotten at a time
	const keys = 1010
	name := func(i int) string { return fmt.Sprint("k", i) }
	for range 2 {
		for i := range keys {
			c.next(t, name(i))
			if n := counter.Known(c.Counters); n > 100 {
				t.Fatalf("it knows %d keys", n)
			}
		}
	}
	for i := range keys {
		c.want(t, name(i), 2)
	}
	do(t, server, "DEL", onstore.Key(c.store, "counter", name(0)))
	for i := keys - 40; i < keys; i++ { // the newest are remembered
		do(t, server, "DEL", onstore.Key(c.store, "counter", name(i)))
		c.gets(t, name(i), 2+margin+1)
	}
	c.gets(t, name(0), 1)
}

// Expired names are taken off the list by the calls that list, and one call does not pay for all of
// them.
func TestListReadsABoundedNumberOfNames(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var reads atomic.Int64
	counting := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		reads.Add(int64(bytes.Count(request, []byte(":{expired:"))))
		return redistest.Pass, nil
	})
	c := process(t, counting.URL())
	list := onstore.Key(c.store, "counters", "names")
	const expired = 5000
	names := make([]redis.Z, 0, expired)
	for i := range expired {
		names = append(names, redis.Z{Member: fmt.Sprintf("expired:%05d", i)})
	}
	expect.NoError(t, "ZAdd", server.Client().ZAdd(t.Context(), list, names...).Err())
	c.countTo(t, "last", 7)
	calls, cursor, found := 0, "", []counter.Listed(nil)
	for next := "first"; next != ""; cursor = next {
		before := reads.Load()
		page, then, err := c.List(t.Context(), "", cursor, 1)
		expect.NoError(t, fmt.Sprintf("List after %q", cursor), err)
		// a script that is not known yet is sent twice
		if looked := reads.Load() - before; looked > 1100 {
			t.Errorf("List after %q looked at %d counters, want 1000 at most", cursor, looked)
		}
		if then != "" && then <= cursor {
			t.Fatalf("List after %q: goes on after %q, want a later name", cursor, then)
		}
		calls, next, found = calls+1, then, append(found, page...)
	}
	if calls > expired/1000+2 {
		t.Errorf("List over %d names that have expired took %d calls, want %d at most", expired, calls, expired/1000+2)
	}
	expect.Equal(t, "what was listed", found, []counter.Listed{{Key: "last", Value: 7}})
	expect.Equal(t, "names that are left on the list", server.Client().ZCard(t.Context(), list).Val(), 1)
}
