package redisstore_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// opened is where and under which marker a counter was found in order.
type opened struct {
	place  pipeline.Place
	marker pipeline.Marker
}

// openOf opens the counter of a name, which is then in order.
func openOf(t testing.TB, store *redisstore.Store, name string) opened {
	t.Helper()
	var found opened
	expect.Eventually(t, "a counter is opened", func() bool {
		marker := store.SlotKey("tests", "marker", name)
		words, place, err := pipeline.Of(store).RunAt(t.Context(), scripts.CounterOpen, []string{store.Key("test", name), store.Key("test", name, "record"), marker},
			"", "", "", 1000, "past", "", 1000, 0, "", "")
		if err != nil || words[0] != "ok" {
			return false
		}
		found = opened{place, pipeline.Marker{Key: marker, Era: words[3]}}
		return true
	})
	return found
}

func incrBy(t testing.TB, store *redisstore.Store, name string, by int64, at opened) (int64, error) {
	t.Helper()
	return pipeline.Of(store).IncrBy(t.Context(), store.Key("test", name), by, at.place, at.marker)
}

// mustIncr adds and fails the test unless the sum is as wanted.
func mustIncr(t testing.TB, store *redisstore.Store, name string, by int64, life opened, want int64) {
	t.Helper()
	if sum, err := incrBy(t, store, name, by, life); err != nil || sum != want {
		t.Fatalf("got %d, %v, want %d", sum, err, want)
	}
}

func otherLife(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, pipeline.ErrOtherIncarnation) || !errors.Is(err, redisstore.ErrRefused) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Fatalf("got %v, want %v", err, pipeline.ErrOtherIncarnation)
	}
}

func TestIncrByOnEveryKindOfStore(t *testing.T) {
	t.Parallel()
	storetest.Each(t, incrOnEveryKind)
}

func TestIncrByOnACallersClient(t *testing.T) {
	t.Parallel()
	storetest.Clients(t, incrOnEveryKind)
}

func incrOnEveryKind(t *testing.T, store *redisstore.Store) {
	_, err := incrBy(t, store, "k", 1, opened{})
	otherLife(t, err)
	life := openOf(t, store, "k")
	mustIncr(t, store, "k", 1, life, 1)
	mustIncr(t, store, "k", 9007199254740992, life, 9007199254740993)
	mustIncr(t, store, "k", -9007199254740993, life, 0)
	mustIncr(t, store, "k", 9223372036854775807, life, 9223372036854775807)
	for range 2 {
		_, err := incrBy(t, store, "k", 1, life)
		expect.Error(t, "IncrBy beyond the greatest integer", err, pipeline.ErrOverflow)
		expect.Error(t, "IncrBy beyond the greatest integer", err, redisstore.ErrRefused)
	}
	text := script("text", "redis.call('SET', KEYS[1], ARGV[1]) return {'ok'}", false)
	list := script("list", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'a') return {'ok'}", false)
	for _, spoil := range []func() error{
		func() error {
			_, err := store.Run(t.Context(), text, []string{store.Key("test", "k")}, "1.5")
			return err
		},
		func() error { _, err := store.Run(t.Context(), list, []string{store.Key("test", "k")}); return err },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		_, err := incrBy(t, store, "k", 1, life)
		expect.Error(t, "IncrBy of what is no integer", err, pipeline.ErrNotAnInteger)
		expect.Error(t, "IncrBy of what is no integer", err, redisstore.ErrRefused)
	}
	manyIncr(t, store)
}

// manyIncr has callers share round trips.
func manyIncr(t *testing.T, store *redisstore.Store) {
	life := openOf(t, store, "many")
	var told history
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 8 {
				sum, err := incrBy(t, store, "many", 1, life)
				if err != nil {
					t.Error(err)
					return
				}
				told.add(sum)
			}
		})
	}
	all.Wait()
	if count, largest := told.unique(t); count != 512 || largest != 512 {
		t.Errorf("%d sums up to %d", count, largest)
	}
}

func TestSumOfAnotherIncarnationIsNotGivenOut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	first := openOf(t, store, "k")
	warm(t, store, 32) // as many connections as the pool may have
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	expect.Eventually(t, "a call succeeds", func() bool { _, err := number(t.Context(), store, peek, "k"); return err == nil })
	mustIncr(t, store, "k", 1, first, 1) // another connection is no other incarnation
	do(t, server, "SAVE")
	for _, again := range []func(){server.Restart, server.RestartEmpty} {
		at := openOf(t, store, "k")
		server.Kill()
		again()
		expect.Eventually(t, "the sum is not the caller's", func() bool {
			_, err := incrBy(t, store, "k", 1, at)
			if err == nil {
				t.Fatal("a sum of another incarnation is given out")
			}
			return errors.Is(err, pipeline.ErrOtherIncarnation)
		})
		if now := openOf(t, store, "k"); now.marker == at.marker {
			t.Errorf("the era after a restart that may have lost something: got that of before, %+v", now.marker)
		}
	}
}

// A sum that was added in an incarnation that is not noted comes with it, so that a script can tell
// whether that one continues the noted one.
func TestSumOfARenamedHistoryIsUnconfirmed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	at := openOf(t, store, "k")
	mustIncr(t, store, "k", 1, at, 1)
	do(t, server, "DEBUG", "CHANGE-REPL-ID")
	_, err := incrBy(t, store, "k", 1, at)
	unconfirmed, is := errors.AsType[*pipeline.UnconfirmedError](err)
	if !is || unconfirmed.Sum != 2 {
		t.Fatalf("IncrBy after the server has renamed its history: got %v, want an UnconfirmedError with the sum 2", err)
	}
	again := openOf(t, store, "k")
	if again.marker != at.marker {
		t.Errorf("the era after the server has only renamed its history: got %+v, want that of before, %+v", again.marker, at.marker)
	}
	mustIncr(t, store, "k", 1, again, 3)
}

func TestFailoverBeginsALife(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.Timeout = 5 * time.Second })
	life := openOf(t, store, "k")
	mustIncr(t, store, "k", 1, life, 1)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	expect.Eventually(t, "it is another life", func() bool {
		_, err := incrBy(t, store, "k", 1, life)
		if err == nil {
			t.Fatal("a sum of another master is given out")
		}
		return errors.Is(err, pipeline.ErrOtherIncarnation)
	})
	now := openOf(t, store, "k")
	if _, err := incrBy(t, store, "k", 1, now); err != nil {
		t.Error(err)
	}
}

func TestIncrByOfASlotThatMovesAddsNothingWhereItWas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), nil)
	life := openOf(t, store, "here")
	mustIncr(t, store, "here", 5, life, 5)
	m := cluster.StartMove(store.Key("test", "here"))
	m.Key(store.Key("test", "here"))
	_, err := incrBy(t, store, "here", 1, life) // ASK
	otherLife(t, err)
	m.Key(life.marker.Key)
	m.Finish()
	_, err = incrBy(t, store, "here", 1, life) // MOVED
	otherLife(t, err)
	moved := openOf(t, store, "here")
	if moved.marker != life.marker {
		t.Errorf("the era of a slot that was moved from a node that lives: got %+v, want that of before, %+v", moved.marker, life.marker)
	}
	mustIncr(t, store, "here", 1, moved, 6)
}

func TestClassesOfErrorsOfIncrBy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var fate, seen atomic.Int32
	proxy := redistest.StartProxy(t, server.Addr(), func(request []byte) (redistest.Fate, func()) {
		if !strings.Contains(string(request), "incrby") {
			return redistest.Pass, nil
		}
		seen.Add(1)
		return redistest.Fate(fate.Load()), nil
	})
	store := open(t, proxy.URL(), func(c *redisstore.Config) { c.AckTimeout = 20 * time.Millisecond })
	life := openOf(t, store, "k")
	for _, row := range []redistest.Fate{redistest.CutBefore, redistest.CutAfter, redistest.Swallow} {
		fate.Store(int32(row))
		before := seen.Load()
		_, err := pipeline.Of(store).IncrBy(hurried(t), store.Key("test", "k"), 1, life.place, life.marker)
		unknown(t, err)
		if n := seen.Load() - before; n != 1 {
			t.Errorf("it was sent %d times", n)
		}
	}
	fate.Store(int32(redistest.Pass))
	mustIncr(t, store, "k", 1, life, 2)

	_, err := incrBy(t, store.WithAck(1), "k", 1, life)
	var short *redisstore.ShortfallError
	if unknown(t, err); !errors.As(err, &short) || short.Want != 1 {
		t.Errorf("IncrBy without a replica: got error %v, want a ShortfallError of 1", err)
	}
	for says, fault := range map[string][2][]any{
		"OOM":        {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
		"NOREPLICAS": {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"NOPERM":     {{"ACL", "SETUSER", "default", "-incrby"}, {"ACL", "SETUSER", "default", "+@all"}},
	} {
		do(t, server, fault[0]...)
		_, err := incrBy(t, store, "k", 1, life)
		if refused(t, err); !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
		do(t, server, fault[1]...)
	}
	mustIncr(t, store, "k", 1, life, 4)
	server.Kill()
	expect.Eventually(t, "nothing can be sent", func() bool {
		_, err := incrBy(t, store, "k", 1, life)
		return errors.Is(err, redisstore.ErrUnavailable)
	})
}
