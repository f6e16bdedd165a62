package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// flush makes every server behind a store forget its scripts.
func flush(t *testing.T, store *redisstore.Store) {
	t.Helper()
	err := onstore.EachMaster(t.Context(), store, "test", func(ctx context.Context,
		node *redis.Client) error {
		return node.ScriptFlush(ctx).Err()
	})
	expect.NoError(t, "EachMaster", err)
}

func TestScriptsOnEveryKindOfStore(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		onEveryKind(t, store)
		t.Run("the address names no secret", func(t *testing.T) { namesItself(t, store) })
		t.Run("prefixes keep stores apart", func(t *testing.T) { keepsPrefixesApart(t, store) })
		t.Run("a closed store is unavailable", func(t *testing.T) { closes(t, store) })
	})
}

func onEveryKind(t *testing.T, store *redisstore.Store) {
	for name, test := range map[string]func(*testing.T, *redisstore.Store){
		"a script that the server does not know is sent as text, once": sendsTextOnce,
		"replies are read":                       readsReplies,
		"arguments arrive as they are":           passesArguments,
		"a key of another kind is refused":       refusesOtherKinds,
		"a script that fails":                    failsAsItsEffectSays,
		"keys of one name live in one slot":      keepsNamesTogether,
		"without replicas nothing is confirmed":  confirmsNothingAlone,
		"a store that answers answers a ping":    answersPing,
		"incarnation is new once, then the same": tellsItsIncarnation,
		"64 callers of a counter":                countsOnce,
	} {
		t.Run(name, func(t *testing.T) { test(t, store) })
	}
}

func sendsTextOnce(t *testing.T, store *redisstore.Store) {
	for i, view := range []*redisstore.Store{store, store, store, store.WithAck(0)} {
		flush(t, store)
		mustBump(t, view, "unknown", int64(2*i+1))
		mustBump(t, view, "unknown", int64(2*i+2)) // by its hash
	}
	flush(t, store)
	var all sync.WaitGroup
	var told history
	for range 16 { // all find it unknown at the same time
		all.Go(func() {
			n, err := bumped(t.Context(), store, "at once")
			expect.Error(t, "adding one to a record", err, nil)
			told.add(n)
		})
	}
	all.Wait()
	if count, largest := told.unique(t); count != 16 || largest != 16 {
		t.Errorf("%d calls up to %d", count, largest)
	}
}

func readsReplies(t *testing.T, store *redisstore.Store) {
	reply, err := onstore.Run(t.Context(), store, script("reply",
		"return {'fine', 'text', 42, '9007199254740993', '', '1700000000001'}", true), []string{onstore.Key(store, "test", "r")})
	expect.NoError(t, "Run", err)
	var (
		text, empty string
		n           int
		large       int64
		at          time.Time
	)
	expect.NoError(t, "Scan", reply.Scan(&text, &n, &large, &empty, &at))
	if reply.Word() != "fine" || text != "text" || n != 42 || large != 9007199254740993 || empty != "" || at.UnixMilli() != 1700000000001 {
		t.Errorf("got %q", reply)
	}
}

func passesArguments(t *testing.T, store *redisstore.Store) {
	echo := script("echo", "local all = {'ok'} for _, word in ipairs(ARGV) do all[#all + 1] = word end return all", true)
	binary := "\x00\r\n$1\r\n\xff{}"
	reply, err := onstore.Run(t.Context(), store, echo, []string{onstore.Key(store, "test", "e")}, "", binary,
		[]byte(binary), 7, int64(1)<<62, -1)
	expect.NoError(t, "Run", err)
	if want := []string{"", binary, binary, "7", "4611686018427387904", "-1"}; !slices.Equal(reply.Values(), want) {
		t.Errorf("got %q, want %q", reply.Values(), want)
	}
}

func refusesOtherKinds(t *testing.T, store *redisstore.Store) {
	key := []string{onstore.Key(store, "test", "list")}
	push := script("push", "redis.call('RPUSH', KEYS[1], 'a') return {'ok'}", false)
	if _, err := onstore.Run(t.Context(), store, push, key); err != nil {
		t.Fatalf("Run: got error %v, want none", err)
	}
	for _, run := range []*scripts.Script{bump, peek, scripts.OperationGet} {
		for _, view := range []*redisstore.Store{store, store.WithAck(1)} {
			_, err := onstore.Run(t.Context(), view, run, key, "x")
			var full *redisstore.Error
			if !errors.Is(err, redisstore.ErrWrongType) || !errors.Is(err, redisstore.ErrRefused) || errors.Is(err, redisstore.ErrUnknownOutcome) ||
				!errors.As(err, &full) || full.Op != run.Name {
				t.Errorf("%s: got %v, want %v", run.Name, err, redisstore.ErrWrongType)
			}
		}
	}
}

func failsAsItsEffectSays(t *testing.T, store *redisstore.Store) {
	for name, source := range map[string]string{
		"a mistake":        "redis.call('INCR', KEYS[1]) return {'ok', nothing.at.all}",
		"no list":          "return redis.call('INCR', KEYS[1])",
		"nothing":          "redis.call('INCR', KEYS[1])",
		"an empty list":    "redis.call('INCR', KEYS[1]) return {}",
		"ended by its nil": "redis.call('INCR', KEYS[1]) return {nil, 'ok'}",
		"a list in a list": "redis.call('INCR', KEYS[1]) return {'ok', {'x'}}",
		"an error":         "redis.call('INCR', KEYS[1]) return redis.error_reply('ERR of its own')",
	} {
		key := []string{onstore.Key(store, "test", "fails "+name)}
		_, err := onstore.Run(t.Context(), store, script("writes", source, false), key)
		unknown(t, err)
		expect.Equal(t, name+": calls that ran", counted(t, store, "fails "+name), 1)
		_, err = onstore.Run(t.Context(), store, script("reads", strings.ReplaceAll(source, "INCR", "EXISTS"), true), key)
		refused(t, err)
	}
}

func keepsNamesTogether(t *testing.T, store *redisstore.Store) {
	both := script("both", "redis.call('INCR', KEYS[1]) return {'ok', tostring(redis.call('INCR', KEYS[2]))}", false)
	for i, name := range []string{"", "a", "orders", "a b", "x:y", "é", strings.Repeat("n", 1000), names.Digest("token", "t"), "\x00\r\n"} {
		keys := []string{onstore.Key(store, "one", name), onstore.Key(store, "other", name, "ends", "more")}
		if name == "" { // an empty tag counts for nothing: the whole key is hashed
			keys = keys[:1]
			keys = append(keys, keys[0])
		}
		if _, err := onstore.Run(t.Context(), store, both, keys); err != nil {
			t.Errorf("%d: Run on two keys of the name %q: %v", i, name, err)
		}
		if store.Mode() != redisstore.ModeCluster {
			continue
		}
		slots := map[int64]bool{}
		err := onstore.EachMaster(t.Context(), store, "test", func(ctx context.Context, node *redis.Client) error {
			for _, key := range keys {
				slot, err := node.ClusterKeySlot(ctx, key).Result()
				if err != nil {
					return err
				}
				storeSlot(slots, slot)
			}
			return nil
		})
		if err != nil || len(slots) != 1 {
			t.Errorf("%q: the keys are in the slots %v, %v", name, slots, err)
		}
	}
}

var slotsMu sync.Mutex // EachMaster asks all at once

func storeSlot(slots map[int64]bool, slot int64) {
	slotsMu.Lock()
	defer slotsMu.Unlock()
	slots[slot] = true
}

func confirmsNothingAlone(t *testing.T, store *redisstore.Store) {
	soon(t, func() {
		for i := range int64(3) {
			_, err := bumped(t.Context(), store.WithAck(1), "alone")
			var short *redisstore.ShortfallError
			if unknown(t, err); !errors.As(err, &short) || short.Want != 1 || short.Got != 0 {
				t.Errorf("got %v, want an acknowledgement by 0 of 1", err)
			}
			expect.Equal(t, "calls that ran", counted(t, store.WithAck(1), "alone"), i+1)
		}
	})
}

func namesItself(t *testing.T, store *redisstore.Store) {
	modes := map[redisstore.Mode]string{redisstore.ModeEmbedded: "embedded:", redisstore.ModeStandalone: "redis://127.0.0.1:", redisstore.ModeCluster: "redis+cluster://127.0.0.1:"}
	if want := modes[store.Mode()]; want == "" || !strings.HasPrefix(store.Address(), want) {
		t.Errorf("%s is at %s", store.Mode(), store.Address())
	}
	if store.Ack() != 0 || store.WithAck(2).Ack() != 2 {
		t.Errorf("the acknowledgements are %d and %d", store.Ack(), store.WithAck(2).Ack())
	}
	if key := onstore.Key(open(t, store.Address(), nil), "test", "x"); key != "coatcheck:test:{x}" {
		t.Errorf("without a prefix the key is %s", key)
	}
}

func keepsPrefixesApart(t *testing.T, store *redisstore.Store) {
	if store.Mode() == redisstore.ModeEmbedded { // each has its own data anyway
		return
	}
	mustBump(t, store, "apart", 1)
	url := store.Address()
	prefix, _, _ := strings.Cut(onstore.Key(store, "test", "x"), "test:")
	mustBump(t, open(t, url, func(c *redisstore.Config) { c.Prefix = prefix + "other:" }), "apart", 1)
	mustBump(t, open(t, url, func(c *redisstore.Config) { c.Prefix = prefix }), "apart", 2)
}

func answersPing(t *testing.T, store *redisstore.Store) {
	expect.Error(t, "Ping", store.Ping(t.Context()), nil)
}

func tellsItsIncarnation(t *testing.T, store *redisstore.Store) {
	first, err := health.IncarnationOf(t.Context(), store)
	if err != nil || first.Change != health.First || len(first.ID) != 40 || first.Losses != 0 {
		t.Fatalf("got %+v, %v", first, err)
	}
	for range 3 {
		again, err := health.IncarnationOf(t.Context(), store)
		if err != nil || again != (health.Incarnation{ID: first.ID, Change: health.Same}) {
			t.Errorf("got %+v, %v, want the same as %+v", again, err, first)
		}
	}
}

func countsOnce(t *testing.T, store *redisstore.Store) {
	const callers, calls = 64, 8
	keys := []string{onstore.Key(store, "counter", "shared"), onstore.Key(store, "counter", "shared", "record"),
		onstore.SlotKey(store, "counters", "marker", "shared")}
	if _, err := onstore.Run(t.Context(), store, scripts.CounterEra, keys[2:], "", 1000); err != nil {
		t.Fatalf("Run: got error %v, want none", err)
	}
	var all sync.WaitGroup
	var told history
	for range callers {
		all.Go(func() {
			last := int64(0)
			for range calls {
				reply, err := onstore.Run(t.Context(), store, scripts.CounterIncr, keys, 1, 0, "", "", "", 0, "begin")
				var n int64
				if err == nil {
					err = reply.Scan(&n)
				}
				if err != nil || n <= last {
					t.Errorf("got %d after %d, %v", n, last, err)
				}
				last = n
				told.add(n)
			}
		})
	}
	all.Wait()
	if count, largest := told.unique(t); count != callers*calls || largest != callers*calls {
		t.Errorf("%d calls got %d values up to %d", callers*calls, count, largest)
	}
}

func closes(t *testing.T, store *redisstore.Store) {
	for _, view := range []*redisstore.Store{store, store, store.WithAck(1)} { // again, too
		expect.Error(t, "Close", view.Close(), nil)
	}
	_, err := bumped(t.Context(), store, "closed")
	refused(t, err)
	_, err = bumped(t.Context(), store.WithAck(1), "closed")
	refused(t, err)
	refused(t, store.Ping(t.Context()))
	expect.Contains(t, "the error of a closed store", fmt.Sprint(err), "closed")
}
