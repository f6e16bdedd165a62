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
)

// generationOf runs a script on a record and tells in which life.
func generationOf(t testing.TB, store *redisstore.Store, name string) pipeline.Generation {
	t.Helper()
	var life pipeline.Generation
	expect.Eventually(t, "a script runs", func() bool {
		var err error
		_, life, err = pipeline.Of(store).RunFor(t.Context(), peek, []string{store.Key("test", name)})
		return err == nil && life.Current()
	})
	return life
}

func incrBy(t testing.TB, store *redisstore.Store, name string, by int64, life pipeline.Generation) (int64, error) {
	t.Helper()
	return pipeline.Of(store).IncrBy(t.Context(), store.Key("test", name), by, life, pipeline.Marker{})
}

// mustIncr adds and fails the test unless the sum is as wanted.
func mustIncr(t testing.TB, store *redisstore.Store, name string, by int64, life pipeline.Generation, want int64) {
	t.Helper()
	if sum, err := incrBy(t, store, name, by, life); err != nil || sum != want {
		t.Fatalf("got %d, %v, want %d", sum, err, want)
	}
}

func otherLife(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, pipeline.ErrOtherGeneration) || !errors.Is(err, redisstore.ErrRefused) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Fatalf("got %v, want %v", err, pipeline.ErrOtherGeneration)
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
	_, err := incrBy(t, store, "k", 1, pipeline.Generation{})
	otherLife(t, err)
	life := generationOf(t, store, "k")
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
	if !life.Current() {
		t.Error("a refusal ended the life")
	}
	manyIncr(t, store)
}

// manyIncr has callers share round trips.
func manyIncr(t *testing.T, store *redisstore.Store) {
	life := generationOf(t, store, "many")
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

func TestLifeEndsWithTheIncarnationAndOnlyThen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	first := generationOf(t, store, "k")
	warm(t, store, 32) // as many connections as the pool may have
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	expect.Eventually(t, "a call succeeds", func() bool { _, err := number(t.Context(), store, peek, "k"); return err == nil })
	if second := generationOf(t, store, "k"); second != first || !first.Current() {
		t.Error("another connection is another life")
	}
	mustIncr(t, store, "k", 1, first, 1)
	do(t, server, "SAVE")
	for restarts, again := range []func(){server.Restart, server.RestartEmpty} {
		life := generationOf(t, store, "k")
		if life == first && restarts > 0 {
			t.Error("the life of before is back")
		}
		server.Kill()
		again()
		before := generationOf(t, store, "other")
		_, err := incrBy(t, store, "k", 1, life)
		otherLife(t, err)
		if life.Current() || life == before || counted(t, store, "k") != int64(1-restarts) {
			t.Errorf("it goes on, or something was added: %d", counted(t, store, "k"))
		}
	}
}

// The life is over, and the process finds out by this very call.
func TestIncrByWhoseConnectionTurnsOutToBeNewIsNobodys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	life := generationOf(t, store, "k")
	server.RestartEmpty()
	expect.Eventually(t, "it is another life", func() bool {
		_, err := incrBy(t, store, "k", 1, life)
		if err == nil {
			t.Fatal("a sum of another incarnation is given out")
		}
		return errors.Is(err, pipeline.ErrOtherGeneration)
	})
	_, ran, err := pipeline.Of(store).RunFor(t.Context(), peek, []string{store.Key("test", "k")})
	expect.Error(t, "RunFor in the new life", err, nil)
	if !ran.Current() || ran == life {
		t.Errorf("life after the change: got %+v, current %v, want a current one that is not %+v", ran, ran.Current(), life)
	}
	// and so for a script: it tells a life that is over
	was := ran
	server.RestartEmpty()
	expect.Eventually(t, "a script runs", func() bool {
		_, ran, err = pipeline.Of(store).RunFor(t.Context(), peek, []string{store.Key("test", "k")})
		return err == nil
	})
	if ran == was && ran.Current() {
		t.Error("a script that ran in another incarnation than it was sent to tells a life that goes on")
	}
}

func TestFailoverBeginsALife(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.Timeout = 5 * time.Second })
	life := generationOf(t, store, "k")
	mustIncr(t, store, "k", 1, life, 1)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	expect.Eventually(t, "it is another life", func() bool {
		_, err := incrBy(t, store, "k", 1, life)
		if err == nil {
			t.Fatal("a sum of another master is given out")
		}
		return errors.Is(err, pipeline.ErrOtherGeneration)
	})
	now := generationOf(t, store, "k")
	if _, err := incrBy(t, store, "k", 1, now); err != nil {
		t.Error(err)
	}
}

func TestIncrByOfASlotThatMovesAddsNothingWhereItWas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), nil)
	life := generationOf(t, store, "here")
	mustIncr(t, store, "here", 5, life, 5)
	m := cluster.StartMove(store.Key("test", "here"))
	m.Key(store.Key("test", "here"))
	_, err := incrBy(t, store, "here", 1, life) // ASK
	otherLife(t, err)
	asked := generationOf(t, store, "here")
	mustIncr(t, store, "here", 1, asked, 6)
	m.Finish()
	_, err = incrBy(t, store, "here", 1, life) // MOVED
	otherLife(t, err)
	if moved := generationOf(t, store, "here"); counted(t, store, "here") == 6 {
		mustIncr(t, store, "here", 1, moved, 7)
	} else {
		t.Errorf("it is at %d", counted(t, store, "here"))
	}
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
	life := generationOf(t, store, "k")
	for _, row := range []redistest.Fate{redistest.CutBefore, redistest.CutAfter, redistest.Swallow} {
		fate.Store(int32(row))
		before := seen.Load()
		_, err := pipeline.Of(store).IncrBy(hurried(t), store.Key("test", "k"), 1, life, pipeline.Marker{})
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
