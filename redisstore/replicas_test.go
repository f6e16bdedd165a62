package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// What --ack all at a plain URL knows of replicas that are away, in a process that starts then.

func all(c *redisstore.Config) { c.Ack, c.AckTimeout = redisstore.AckAll, time.Second }

// attach makes a server a replica of another one, and waits until as many are attached there.
func attach(t *testing.T, replica, master *redistest.Server, attached int) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	do(t, replica, "REPLICAOF", host, port)
	expect.Eventually(t, "the replica is attached", func() bool {
		return strings.Count(do(t, master, "INFO", "replication").(string), "state=online") == attached
	})
}

// A replica that was attached once has to confirm, also if it goes away, and in a process that has
// never seen it: Sentinel may have forgotten it.
func TestReplicaThatAWriteHasFoundIsKnownToTheNextProcess(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	store, comes := open(t, set.URL(), all), redistest.Start(t)
	expect.Eventually(t, "its replica confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	attach(t, comes, set.Master(), 2)
	expect.Eventually(t, "both confirm", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	expect.Equal(t, "what the one that has come holds", do(t, comes, "GET", onstore.Key(store, "test", "x")),
		any(fmt.Sprint(counted(t, store, "x"))))
	comes.Kill()
	away(t, set.Master(), 1)
	for _, sentinel := range set.Sentinels() {
		do(t, sentinel, "SENTINEL", "RESET", "*")
	}
	expect.Eventually(t, "another process waits for it", func() bool {
		_, err := bumped(t.Context(), open(t, set.URL(), all), "z")
		short, is := errors.AsType[*redisstore.ShortfallError](err)
		return is && *short == redisstore.ShortfallError{Want: 2, Got: 1, Missing: comes.Addr() + ", which is not attached"}
	})
	if _, err := store.ReplicasGone(t.Context(), set.Replicas()[0].Addr()); !errors.Is(err, redisstore.ErrRefused) {
		t.Errorf("a replica that is attached, said to be gone: got %v, want %v", err, redisstore.ErrRefused)
	}
	gone, err := store.ReplicasGone(t.Context(), comes.Addr())
	expect.NoError(t, "ReplicasGone", err)
	expect.Equal(t, "which is gone", gone, []string{comes.Addr()})
	expect.Eventually(t, "nobody waits for the one that is gone", func() bool {
		_, err := bumped(t.Context(), store, "x")
		_, other := bumped(t.Context(), open(t, set.URL(), all), "z")
		return err == nil && other == nil
	})
}

// TestReplicaThatIsGoneStaysGoneUnderLoad: two processes use notes of which each has the replica.
// None may give it back to another.
func TestReplicaThatIsGoneStaysGoneUnderLoad(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	stores, comes := []*redisstore.Store{open(t, set.URL(), all), open(t, set.URL(), all)}, redistest.Start(t)
	attach(t, comes, set.Master(), 2)
	var notes []string
	for i := range 10 {
		notes = append(notes, onstore.Key(stores[0], fmt.Sprintf("test%d", i), "marker"))
	}
	use := func(store *redisstore.Store, note string) error {
		_, err := onstore.Run(t.Context(), store, scripts.Incarnation, []string{note})
		return err
	}
	naming := func() (n int) {
		for _, note := range notes {
			if strings.Contains(do(t, set.Master(), "GET", note).(string), "@"+comes.Addr()) {
				n++
			}
		}
		return n
	}
	for _, note := range notes {
		expect.Eventually(t, "it is noted", func() bool { return use(stores[0], note) == nil && use(stores[1], note) == nil })
	}
	expect.Equal(t, "notes that name it", naming(), len(notes))
	for _, sentinel := range set.Sentinels() {
		_, port, _ := strings.Cut(comes.Addr(), ":")
		expect.Eventually(t, "a sentinel lists it", func() bool {
			return strings.Contains(fmt.Sprint(do(t, sentinel, "SENTINEL", "REPLICAS", "coatcheck")), port)
		})
	}
	comes.Kill()
	away(t, set.Master(), 1)
	if _, err := stores[0].ReplicasGone(t.Context()); !errors.Is(err, redisstore.ErrNotGone) || !strings.Contains(err.Error(), comes.Addr()) {
		t.Errorf("a replica that sentinels list: got %v, want %v", err, redisstore.ErrNotGone)
	}
	for _, sentinel := range set.Sentinels() {
		do(t, sentinel, "SENTINEL", "RESET", "*")
	}
	var load sync.WaitGroup
	ended := make(chan struct{})
	for _, store := range stores {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
					_ = use(store, notes[i%len(notes)])
				}
			}
		})
	}
	gone, err := stores[0].ReplicasGone(t.Context())
	expect.NoError(t, "ReplicasGone", err)
	expect.Equal(t, "which are gone", gone, []string{comes.Addr()})
	for _, note := range notes {
		expect.Eventually(t, "writes go on", func() bool { return use(stores[0], note) == nil && use(stores[1], note) == nil })
	}
	close(ended)
	load.Wait()
	expect.Equal(t, "notes that name it", naming(), 0)
}

func TestPlaceHasAHostAndAPort(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"10.0.0.2", "", ":6379", "10.0.0.2:"} {
		if _, err := open(t, "embedded:", nil).ReplicasGone(t.Context(), place); !errors.Is(err, redisstore.ErrNotGone) {
			t.Errorf("place %q: got %v, want %v", place, err, redisstore.ErrNotGone)
		}
	}
}

// WAIT counts whoever has the write, also a client that copies the data: that does not confirm in
// the place of a replica that lags.
func TestCopyOfTheDataConfirmsForNoReplica(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	store := open(t, set.URL(), all)
	expect.Eventually(t, "the replica confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	copies := redistest.Start(t)
	attach(t, copies, set.Master(), 2)
	expect.Eventually(t, "both confirm", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	set.Replicas()[0].Pause()
	defer set.Replicas()[0].Resume()
	_, err := bumped(t.Context(), store, "x")
	shortfall(t, err, 1, 2)
}

// A replica that copies everything by two channels has two lines in INFO meanwhile, where the
// engine has that. It is one replica, which confirms nothing until it has loaded.
func TestReplicaThatLoadsByTwoChannelsIsOne(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 1)
	master, replica := set.Master(), set.Replicas()[0]
	for _, server := range []*redistest.Server{master, replica} {
		// of Valkey and of Redis 8
		for _, setting := range []string{"dual-channel-replication-enabled", "repl-rdb-channel"} {
			_ = server.Client().ConfigSet(t.Context(), setting, "yes").Err()
		}
	}
	store := open(t, set.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })

	do(t, master, "CONFIG", "SET", "repl-backlog-size", "16kb", "rdb-key-save-delay", 50, "repl-diskless-sync", "yes")
	do(t, master, "DEBUG", "POPULATE", 20_000, "populated", 100)
	replica.Pause()
	do(t, master, "CLIENT", "KILL", "TYPE", "replica")
	for range 10 {
		do(t, master, "SET", "more", strings.Repeat("than the backlog holds", 1000))
	}
	replica.Resume()
	expect.Eventually(t, "it has loaded everything, and confirms", func() bool {
		_, err := bumped(t.Context(), store, "x")
		if short, is := errors.AsType[*redisstore.ShortfallError](err); is && short.Want != 1 {
			t.Errorf("while it loads: got %v, want 1 replica to be waited for", err)
		}
		return err == nil && do(t, replica, "GET", "more") != nil
	})
	expect.Equal(t, "what the replica has", do(t, replica, "GET", onstore.Key(store, "test", "x")), any(fmt.Sprint(counted(t, store, "x"))))
}

// Where there are no replicas to speak of, none is forgotten.
func TestReplicasGoneOnEveryKindOfStore(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"embedded:", redistest.Start(t).URL(), redistest.StartSentinel(t, 1).URL(), redistest.StartCluster(t, 3, 0).URL()} {
		if _, err := open(t, url, nil).ReplicasGone(t.Context()); err != nil {
			t.Errorf("ReplicasGone at %s: %v", url, err)
		}
	}
}
