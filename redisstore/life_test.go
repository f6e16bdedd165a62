package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// found is where a script has found a counter in order, and what an increment of it depends on.
type found struct {
	pipeline.Place
	pipeline.Marker

	value string // of the counter, "" without one
	id    string // the incarnation that is noted
	moved bool   // past what may have been lost
}

// margin is how far a counter moves after a loss.
const margin = 1000

// tryFind opens a counter, which knows nothing of earlier eras.
func tryFind(t testing.TB, store *redisstore.Store, name string) (f found, err error) {
	t.Helper()
	f.Key = onstore.Key(store, "marker", name)
	keys := []string{onstore.Key(store, "test", name), onstore.Key(store, "record", name), f.Key}
	words, place, err := pipeline.Of(store).RunAt(t.Context(), scripts.CounterOpen, keys, "", "", "", margin, "past", "", 0, "", "", "")
	if err != nil {
		return f, err
	}
	reply := scripts.Reply(words)
	if reply.Word() != "ok" {
		t.Fatalf("counter_open of %s: got %v, want ok", name, words)
	}
	f.Place, f.value, f.Era, f.moved, f.id = place, words[1], words[3], words[6] == "1", words[7]
	return f, nil
}

// find opens a counter as soon as the server answers.
func find(t testing.TB, store *redisstore.Store, name string) (f found) {
	t.Helper()
	expect.Eventually(t, "counter "+name+" is opened", func() bool {
		var err error
		f, err = tryFind(t, store, name)
		return err == nil
	})
	return f
}

func incrBy(t testing.TB, store *redisstore.Store, name string, by int64, at found) (int64, error) {
	t.Helper()
	return pipeline.Of(store).IncrBy(t.Context(), onstore.Key(store, "test", name), by, at.Place, at.Marker)
}

// mustIncr adds and fails the test unless the sum is as wanted.
func mustIncr(t testing.TB, store *redisstore.Store, name string, by int64, at found, want int64) {
	t.Helper()
	if sum, err := incrBy(t, store, name, by, at); err != nil || sum != want {
		t.Fatalf("IncrBy %s by %d: got %d, %v, want %d", name, by, sum, err, want)
	}
}

func otherIncarnation(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, pipeline.ErrOtherIncarnation) || !errors.Is(err, redisstore.ErrRefused) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Fatalf("got %v, want %v", err, pipeline.ErrOtherIncarnation)
	}
}

// nextIncarnation adds until the server answers, and fails the test if a sum of it is given out.
func nextIncarnation(t testing.TB, store *redisstore.Store, at found) *pipeline.UnconfirmedError {
	t.Helper()
	var answer error
	expect.Eventually(t, "an increment is refused as one of another incarnation", func() bool {
		sum, err := incrBy(t, store, "k", 1, at)
		if err == nil {
			t.Fatalf("the sum %d of another incarnation is given out", sum)
		}
		answer = err
		return errors.Is(err, pipeline.ErrOtherIncarnation)
	})
	unconfirmed, _ := errors.AsType[*pipeline.UnconfirmedError](answer)
	return unconfirmed
}

func TestIncrByOnEveryKindOfStore(t *testing.T) {
	t.Parallel()
	storetest.Each(t, incrOnEveryKind)
}

func incrOnEveryKind(t *testing.T, store *redisstore.Store) {
	_, err := incrBy(t, store, "k", 1, found{})
	otherIncarnation(t, err)
	at := find(t, store, "k")
	mustIncr(t, store, "k", 1, at, 1)
	mustIncr(t, store, "k", 9007199254740992, at, 9007199254740993)
	mustIncr(t, store, "k", -9007199254740993, at, 0)
	mustIncr(t, store, "k", 9223372036854775807, at, 9223372036854775807)
	for range 2 {
		_, err := incrBy(t, store, "k", 1, at)
		expect.Error(t, "IncrBy beyond the greatest integer", err, pipeline.ErrOverflow)
		expect.Error(t, "IncrBy beyond the greatest integer", err, redisstore.ErrRefused)
	}
	text := script("text", "redis.call('SET', KEYS[1], ARGV[1]) return {'ok'}", false)
	list := script("list", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'a') return {'ok'}", false)
	for _, spoil := range []func() error{
		func() error {
			_, err := onstore.Run(t.Context(), store, text, []string{onstore.Key(store, "test", "k")}, "1.5")
			return err
		},
		func() error {
			_, err := onstore.Run(t.Context(), store, list, []string{onstore.Key(store, "test", "k")})
			return err
		},
	} {
		expect.NoError(t, "spoiling the counter", spoil())
		_, err := incrBy(t, store, "k", 1, at)
		expect.Error(t, "IncrBy of what is no integer", err, pipeline.ErrNotAnInteger)
		expect.Error(t, "IncrBy of what is no integer", err, redisstore.ErrRefused)
	}
	if _, err := onstore.Run(t.Context(), store, text, []string{onstore.Key(store, "test", "k")}, "1"); err != nil {
		t.Fatalf("Run: got error %v, want none", err)
	}
	mustIncr(t, store, "k", 1, at, 2) // a refusal changes nothing
	manyIncr(t, store)
}

// manyIncr has callers share round trips.
func manyIncr(t *testing.T, store *redisstore.Store) {
	at := find(t, store, "many")
	var told history
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 8 {
				sum, err := incrBy(t, store, "many", 1, at)
				if err != nil {
					t.Errorf("IncrBy: got error %v, want none", err)
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

// Another connection is no other incarnation. A restart is one, of a server that keeps nothing on
// disk by itself: what a file brought back counts for a loss.
func TestSumsEndWithTheIncarnationAndOnlyThen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	first := find(t, store, "k")
	warm(t, store, 32) // as many connections as the pool may have
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	expect.Eventually(t, "a call succeeds", func() bool { _, err := number(t.Context(), store, peek, "k"); return err == nil })
	expect.Equal(t, "the era after the connections were cut", find(t, store, "k").Era, first.Era)
	mustIncr(t, store, "k", 1, first, 1)
	do(t, server, "SAVE")
	for _, row := range []struct {
		name  string
		again func()
		keeps bool
	}{
		{"from a file", server.Restart, true}, {"with nothing", server.RestartEmpty, false},
	} {
		before := find(t, store, "k")
		server.Kill()
		row.again()
		unconfirmed := nextIncarnation(t, store, before)
		expect.Equal(t, "restart "+row.name+": the sum may turn out to be the caller's", unconfirmed != nil, row.keeps)
		now := find(t, store, "k")
		if now.Era == before.Era || now.id == before.id {
			t.Errorf("restart %s: got the era %s of %s, want another than %s of %s", row.name, now.Era, now.id, before.Era, before.id)
		}
		if row.keeps {
			expect.Equal(t, "restart "+row.name+": the counter has moved", now.moved, true)
		}
		_, err := incrBy(t, store, "k", 1, before)
		otherIncarnation(t, err)
		if _, err := incrBy(t, store, "k", 1, now); err != nil {
			t.Errorf("restart %s: IncrBy in the new era: %v", row.name, err)
		}
	}
}

// A marker that is gone, or is another, puts the sum to no use, and so does a server that is
// reached by a connection that was made before.
func TestIncrByBesideAnotherMarkerIsNobodys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	at := find(t, store, "k")
	mustIncr(t, store, "k", 1, at, 1)
	text, err := server.Client().Get(t.Context(), at.Key).Result()
	expect.Error(t, "GET of the marker", err, nil)
	noted, rest, _ := strings.Cut(text, " ")
	_, cover, _ := strings.Cut(noted, ":")
	for _, row := range []struct {
		name, marker string
		sum          int64 // that is not confirmed, 0 = none
	}{
		{"as it was", text, -1},
		{"gone", "", 0},
		{"another era", noted + " 1 0 1", 0},
		{"another id", strings.Repeat("0a", 20) + ":" + cover + " " + rest, 5},
		{"an id alone", at.id + " " + rest, 6},
		{"restored", "0:::::00:restored: " + rest, 7},
		{"nonsense", "nonsense", 0},
	} {
		do(t, server, "SET", at.Key, row.marker)
		if row.marker == "" {
			do(t, server, "DEL", at.Key)
		}
		sum, err := incrBy(t, store, "k", 1, at)
		if row.sum < 0 {
			expect.Error(t, "IncrBy beside a marker "+row.name, err, nil)
			continue
		}
		otherIncarnation(t, err)
		unconfirmed, _ := errors.AsType[*pipeline.UnconfirmedError](err)
		if is := unconfirmed != nil; is != (row.sum > 0) || is && (unconfirmed.Sum != row.sum || unconfirmed.ID != at.id) {
			t.Errorf("IncrBy beside a marker %s: got %d, %+v, want a sum to confirm of %d in %s", row.name, sum, unconfirmed, row.sum, at.id)
		}
	}
}

// An increment that is confirmed by less than the marker says counts once a script has noted that,
// or a restart would be believed to have it.
func TestIncrByThatIsConfirmedByLessIsNotedFirst(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	store := open(t, server.URL(), nil)
	at := find(t, store, "k")
	mustIncr(t, store, "k", 1, at, 1)
	do(t, server, "CONFIG", "SET", "appendfsync", "everysec")
	_, err := store.Continuity(t.Context()) // it asks, as every ten seconds
	expect.NoError(t, "Continuity", err)
	_, err = incrBy(t, store, "k", 1, at)
	if unconfirmed, is := errors.AsType[*pipeline.UnconfirmedError](err); !is || unconfirmed.Sum != 2 || unconfirmed.ID != at.id {
		t.Fatalf("IncrBy that is not on disk, beside a marker that says so: got %v, want a sum of 2 to confirm", err)
	}
	now := find(t, store, "k")
	if now.Era != at.Era || now.value != "2" || now.moved {
		t.Errorf("the counter: got %+v, want the era %s and the value 2", now, at.Era)
	}
	mustIncr(t, store, "k", 1, now, 3)
	do(t, server, "CONFIG", "SET", "appendfsync", "always")
	server.Kill()
	server.Restart()
	nextIncarnation(t, store, now)
	if again := find(t, store, "k"); again.Era == now.Era {
		t.Errorf("after a restart: got the era %s again, want another, since not all was on disk", again.Era)
	}
}

// Without a replica that confirms, a promotion may have lost something.
func TestFailoverBeginsAnEra(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.Timeout = 5 * time.Second })
	before := find(t, store, "k")
	mustIncr(t, store, "k", 1, before, 1)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	nextIncarnation(t, store, before)
	now := find(t, store, "k")
	if now.Era == before.Era {
		t.Errorf("the era after a failover without acknowledgement: got %s again, want another", now.Era)
	}
	if _, err := incrBy(t, store, "k", 1, now); err != nil {
		t.Errorf("incrBy: got error %v, want none", err)
	}
}

// Where every replica confirms, a promotion goes on with the era, and the sum of an increment that
// went over it is one of this counter.
func TestFailoverThatAllConfirmedGoesOn(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) {
		c.Timeout, c.AckTimeout, c.Ack = 10*time.Second, 5*time.Second, redisstore.AckAll
	})
	before := find(t, store, "k")
	mustIncr(t, store, "k", 1, before, 1)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	old.Restart() // as a replica: without it nothing is confirmed by all
	unconfirmed := nextIncarnation(t, store, before)
	if unconfirmed == nil {
		t.Fatal("the sum of an increment over a promotion is lost, want one that can be confirmed")
	}
	now := find(t, store, "k")
	if now.Era != before.Era || now.moved || now.id != unconfirmed.ID || now.value != fmt.Sprint(unconfirmed.Sum) {
		t.Errorf("after a promotion: got %+v, want the era %s of %s, and the counter at %d", now, before.Era, unconfirmed.ID, unconfirmed.Sum)
	}
	if _, err := incrBy(t, store, "k", 1, now); err != nil {
		t.Errorf("incrBy: got error %v, want none", err)
	}
}

func TestIncrByOfASlotThatMovesAddsNothingWhereItWas(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), nil)
	before := find(t, store, "here")
	mustIncr(t, store, "here", 5, before, 5)
	m := cluster.StartMove(onstore.Key(store, "test", "here"))
	m.Key(onstore.Key(store, "test", "here"))
	_, err := incrBy(t, store, "here", 1, before) // ASK
	otherIncarnation(t, err)
	asked := before
	_, asked.Place, err = pipeline.Of(store).RunAt(t.Context(), peek, []string{onstore.Key(store, "test", "here")})
	expect.Error(t, "a script on the key that has moved", err, nil)
	_, err = incrBy(t, store, "here", 1, asked) // its marker has not moved
	otherIncarnation(t, err)
	m.Key(before.Key)
	_, err = incrBy(t, store, "here", 1, asked) // the marker is that of another server
	if unconfirmed, is := errors.AsType[*pipeline.UnconfirmedError](err); !is || unconfirmed.Sum != 7 || unconfirmed.ID == before.id {
		t.Errorf("IncrBy after the counter and its marker moved: got %v, want a sum of 7 to confirm", err)
	}
	m.Finish()
	_, err = incrBy(t, store, "here", 1, before) // MOVED
	otherIncarnation(t, err)
	moved := find(t, store, "here")
	if moved.Era == before.Era || moved.value != "1007" || moved.id == before.id {
		t.Errorf("after the slot has moved: got %+v, want another era than %s and the value 1007 under another id than %s", moved, before.Era, before.id)
	}
	mustIncr(t, store, "here", 1, moved, 1008)
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
	at := find(t, store, "k")
	for _, row := range []redistest.Fate{redistest.CutBefore, redistest.CutAfter, redistest.Swallow} {
		fate.Store(int32(row))
		before := seen.Load()
		_, err := pipeline.Of(store).IncrBy(hurried(t), onstore.Key(store, "test", "k"), 1, at.Place, at.Marker)
		unknown(t, err)
		expect.Equal(t, "times that it was sent", seen.Load()-before, 1)
	}
	fate.Store(int32(redistest.Pass))
	mustIncr(t, store, "k", 1, at, 2)

	_, err := incrBy(t, store.WithAck(1), "k", 1, at)
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
		_, err := incrBy(t, store, "k", 1, at)
		if refused(t, err); !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
		do(t, server, fault[1]...)
	}
	mustIncr(t, store, "k", 1, at, 4)
	server.Kill()
	expect.Eventually(t, "nothing can be sent", func() bool {
		_, err := incrBy(t, store, "k", 1, at)
		return errors.Is(err, redisstore.ErrUnavailable)
	})
}

// Calls that come while the store closes are told so, and none of their goroutines is left.
func TestCallsBesideCloseAreTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for range 20 {
		store, err := redisstore.OpenConfig(t.Context(), redisstore.Config{URL: server.URL(), Timeout: time.Minute})
		expect.NoError(t, "redisstore.OpenConfig", err)
		warm(t, store, 4)
		var calls sync.WaitGroup
		closed := make(chan struct{})
		for range 64 {
			calls.Go(func() {
				for range 50 {
					if _, err := bumped(t.Context(), store, "x"); err != nil {
						inClass(t, err)
						return
					}
				}
			})
		}
		time.AfterFunc(2*time.Millisecond, func() {
			defer close(closed)
			expect.NoError(t, "Close", store.Close())
		})
		calls.Wait()
		<-closed
	}
}
