package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/health"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/redisstore/observe"
)

// load calls a store from several goroutines until it is stopped, and keeps what they were told.
type load struct {
	history
	errs []error
	stop context.CancelFunc
	done sync.WaitGroup
}

func startLoad(t *testing.T, store *redisstore.Store, name string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	for range 4 {
		l.done.Go(func() {
			for ctx.Err() == nil {
				n, err := bumped(t.Context(), store, name)
				if err == nil {
					l.add(n)
					continue
				}
				l.mu.Lock()
				l.errs = append(l.errs, err)
				l.mu.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.done.Wait()
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.values)
}

func sentinels(t *testing.T, set *redistest.SentinelSet) []*redis.Client {
	t.Helper()
	hosts, _, _ := strings.Cut(strings.TrimPrefix(set.URL(), "redis+sentinel://"), "/")
	var clients []*redis.Client
	for addr := range strings.SplitSeq(hosts, ",") {
		client := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	return clients
}

func TestStoreFollowsAFailover(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.Timeout, c.AckTimeout, c.Ack = 5*time.Second, 2*time.Second, 1 })
	if store.Mode() != redisstore.ModeSentinel || !strings.HasSuffix(store.Address(), "/coatcheck") {
		t.Errorf("it is %s, %s", store.Mode(), store.Address())
	}
	load := startLoad(t, store, "x")
	expect.Eventually(t, "calls succeed", func() bool { return load.count() > 50 })
	set.Master().Kill()
	before := load.count()
	expect.Eventually(t, "calls succeed again, by themselves", func() bool { return load.count() > before+50 })
	load.end()
	for _, err := range load.errs {
		inClass(t, err)
	}
	if len(load.errs) == 0 {
		t.Error("no call noticed that the master was killed")
	}
	// After many failed dials go-redis does not try one for up to a second; until then a call
	// without a connection is refused.
	expect.Eventually(t, "a read succeeds", func() bool { _, err := number(t.Context(), store, peek, "x"); return err == nil })
	count, largest := load.unique(t)
	if n := counted(t, store, "x"); n < largest || largest < int64(count) {
		t.Errorf("%d values up to %d were handed out, the count is %d", count, largest, n)
	}
}

// A client of a Sentinel set connects to sentinels, too. Those are no other incarnation of the
// server that holds the data: no observer is told of one, and what was begun before goes on.
func TestConnectionToASentinelIsNoOtherIncarnation(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	seen := &watcher{name: "seen"}
	store := storetest.Open(t, redisstore.Config{URL: set.URL(), Timeout: 10 * time.Second, Observers: []observe.Observer{seen.observer()}})
	at := find(t, store, "x")
	warm(t, store, 32) // which asks a sentinel on more connections
	mustIncr(t, store, "x", 1, at, 1)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	expect.Equal(t, "number of other incarnations that were told of", seen.lives, 0)
}

func TestNothingGoesToAnOldMasterThatCameBack(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), nil)
	warm(t, store, 16)
	old := set.Master()
	old.Kill()
	set.WaitForMaster(old)
	old.Restart() // as a master, until the sentinels make it a replica
	expect.Eventually(t, "the old master is a replica in step", func() bool {
		// it cuts its clients off when it is demoted
		info := old.Client().Info(t.Context(), "replication").Val()
		return strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
	})
	expect.Eventually(t, "a call succeeds", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	do(t, old, "CONFIG", "RESETSTAT")
	first := counted(t, store, "x")
	for i := range int64(50) {
		mustBump(t, store, "x", first+1+i)
	}
	if stats := do(t, old, "INFO", "commandstats").(string); strings.Contains(stats, "cmdstat_eval") {
		t.Errorf("the old master was sent scripts:\n%s", stats)
	}
}

// A failover is a possible loss if anything was confirmed by too few replicas since the incarnation
// was noted, and goes on otherwise. The first caller after it hears of it.
func TestFailoverChangesTheIncarnationOnce(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		few    bool
		losses int64
	}{
		{"confirmed by all", false, 0},
		{"confirmed by too few", true, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			set := redistest.StartSentinel(t, 2)
			store := open(t, set.URL(), nil)
			patient := open(t, set.URL(), func(c *redisstore.Config) {
				c.Timeout, c.AckTimeout, c.Ack = time.Minute, 30*time.Second, redisstore.AckAll
			})
			notes := patient
			if row.few {
				notes = store
			}
			first, err := health.IncarnationOf(t.Context(), notes)
			if err != nil || first.Change != health.First {
				t.Fatalf("the incarnation at first: got %+v, %v, want a first one", first, err)
			}
			mustBump(t, store.WithAck(2), "x", 1) // the replicas have it, too
			old := set.Master()
			old.Kill()
			set.WaitForMaster(old)
			old.Restart() // what all have confirmed, all confirm
			second := lives(t, notes)
			if lost := second.Change == health.Changed; lost != row.few || second.Losses != row.losses || second.ID == first.ID {
				t.Errorf("got %+v after %+v, want a loss %v, %d losses", second, first, row.few, row.losses)
			}
			if again := lives(t, notes); again != (health.Incarnation{ID: second.ID, Losses: row.losses, Change: health.Same}) {
				t.Errorf("got %+v after %+v", again, second)
			}
		})
	}
}

// A planned failover demotes a master that lives: its connections are open, and it answers
// READONLY.
func TestStoreFollowsAPlannedFailover(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.Timeout, c.AckTimeout, c.Ack = 5*time.Second, 2*time.Second, 2 })
	old := set.Master()
	load := startLoad(t, store, "x")
	expect.Eventually(t, "calls succeed", func() bool { return load.count() > 50 })
	expect.Eventually(t, "a sentinel agrees to a failover", func() bool {
		return sentinels(t, set)[0].Do(t.Context(), "SENTINEL", "FAILOVER", "coatcheck").Err() == nil
	})
	set.WaitForMaster(old)
	before := load.count()
	expect.Eventually(t, "calls succeed again, by themselves", func() bool { return load.count() > before+50 })
	load.end()
	for _, err := range load.errs {
		inClass(t, err)
	}
	load.unique(t)
}

func TestSentinelsThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	set := redistest.StartSentinel(t, 0)
	url := strings.Replace(set.URL(), "redis+sentinel://", "redis+sentinel://"+server.Addr()+",", 1)
	mustBump(t, open(t, url, nil), "x", 1) // one of four is down

	soon(t, func() {
		_, err := bumped(t.Context(), open(t, "redis+sentinel://"+server.Addr()+"/coatcheck", nil), "x")
		refused(t, err)
	})
	soon(t, func() {
		_, err := bumped(t.Context(), open(t, strings.TrimSuffix(set.URL(), "coatcheck")+"stranger", nil), "x")
		refused(t, err)
	})
	mute := between(t, server.Addr())
	mute.SetDeaf(true)
	soon(t, func() {
		url := strings.Replace(mute.URL(), "redis://", "redis+sentinel://", 1) + "/coatcheck"
		// closing waits for the question to the sentinel, as long as that
		store := open(t, url, func(c *redisstore.Config) { c.Timeout = brief })
		_, err := bumped(t.Context(), store, "x")
		refused(t, err, context.DeadlineExceeded)
	})
}

func TestDatabaseOfASentinelSet(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 0)
	mustBump(t, open(t, set.URL()+"/3", nil), "x", 1)
	mustBump(t, open(t, set.URL(), nil), "x", 1)
	expect.Equal(t, "DBSIZE of database 0", do(t, set.Master(), "DBSIZE"), any(int64(1)))
	if _, err := bumped(t.Context(), open(t, set.URL()+"/99", nil), "x"); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, redisstore.ErrUnavailable)
	}
}

// A sentinel that was started anew, or reset by itself, does not know of a replica that is away.
// The others list it, and may promote it: it has to confirm.
func TestReplicaThatOneSentinelForgotHasToConfirm(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	all := func(c *redisstore.Config) { c.Ack, c.AckTimeout = redisstore.AckAll, time.Second }
	mustBump(t, open(t, set.URL(), all), "x", 1)
	master, away := set.Master(), set.Replicas()[0]
	away.Pause()
	other := redistest.Start(t)
	do(t, other, "REPLICAOF", "127.0.0.1", strings.TrimPrefix(master.Addr(), "127.0.0.1:"))
	do(t, master, "CLIENT", "KILL", "TYPE", "replica")
	asked := sentinels(t, set)
	lists := func(sentinel int, server *redistest.Server) bool {
		text := fmt.Sprint(asked[sentinel].Do(t.Context(), "SENTINEL", "REPLICAS", "coatcheck").Val())
		return strings.Contains(text, server.Addr())
	}
	expect.Eventually(t, "two sentinels list both", func() bool {
		return lists(1, away) && lists(1, other) && lists(2, away) && lists(2, other)
	})
	expect.NoError(t, "SENTINEL RESET", asked[0].Do(t.Context(), "SENTINEL", "RESET", "coatcheck").Err())
	expect.Eventually(t, "the first lists only what is attached", func() bool { return lists(0, other) && !lists(0, away) })
	_, err := bumped(t.Context(), open(t, set.URL(), all), "x")
	shortfall(t, err, 1, 2)
	away.Resume()
	expect.Eventually(t, "it is back, and confirms", func() bool {
		_, err := bumped(t.Context(), open(t, set.URL(), all), "x")
		return err == nil
	})
}

// Fewer than half of the sentinels may all have been started anew.
func TestFewSentinelsSayNothingOfReplicas(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	for _, sentinel := range set.Sentinels()[1:] {
		sentinel.Kill()
	}
	_, err := bumped(t.Context(), open(t, set.URL(), func(c *redisstore.Config) { c.Ack, c.Timeout = redisstore.AckAll, 3*time.Second }), "x")
	if err == nil || !strings.Contains(err.Error(), "1 of 3 sentinels have answered, and more than half have to") {
		t.Errorf("a write while two of three sentinels are away: got %v", err)
	}
}
