package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
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

// shortfall fails the test unless the error says that so many of the replicas confirmed.
func shortfall(t testing.TB, err error, got, want int) {
	t.Helper()
	unknown(t, err)
	var short *redisstore.ShortfallError
	if !errors.As(err, &short) || short.Want != want || short.Got != got {
		t.Fatalf("got %v, want an acknowledgement by %d of %d", err, got, want)
	}
}

// replicated starts a master with two replicas, and a store on them whose writes wait for a short
// while.
func replicated(t *testing.T) (*redisstore.Store, *redistest.SentinelSet) {
	set := redistest.StartSentinel(t, 2)
	set.Calm()
	store := open(t, set.URL(), func(c *redisstore.Config) { c.AckTimeout = time.Second })
	patient := open(t, set.URL(), func(c *redisstore.Config) { c.AckTimeout = 30 * time.Second })
	// both replicas have caught up
	if _, err := bumped(t.Context(), patient.WithAck(2), "first"); err != nil {
		t.Fatalf("adding one to a record: got error %v, want none", err)
	}
	return store, set
}

func TestAcknowledgementByEnoughReplicas(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinel(t, 2)
	store := open(t, set.URL(), func(c *redisstore.Config) { c.AckTimeout = 30 * time.Second })
	for ack := range 3 {
		for i := range int64(5) {
			mustBump(t, store.WithAck(ack), "x", int64(ack)*5+i+1)
		}
	}
	for _, replica := range set.Replicas() {
		expect.Equal(t, "GET at a replica that confirmed", do(t, replica, "GET", onstore.Key(store, "test", "x")), any("15"))
	}
	short := open(t, set.URL(), func(c *redisstore.Config) { c.AckTimeout = 2 * time.Second })
	_, err := bumped(t.Context(), short.WithAck(3), "x") // more than there are
	shortfall(t, err, 2, 3)
	expect.Equal(t, "writes on the master, with the one that too few confirmed", counted(t, short, "x"), 16)
}

func TestPausedReplicaIsAShortfallAndTheMasterHasTheWrite(t *testing.T) {
	t.Parallel()
	store, set := replicated(t)
	master, replicas := set.Master(), set.Replicas()
	replicas[0].Pause()
	mustBump(t, store.WithAck(1), "x", 1)
	_, err := bumped(t.Context(), store.WithAck(2), "x")
	shortfall(t, err, 1, 2)
	replicas[1].Pause()
	_, err = bumped(t.Context(), store.WithAck(1), "x")
	shortfall(t, err, 0, 1)
	_, err = bumped(t.Context(), store.WithAck(2), "x")
	shortfall(t, err, 0, 2)
	expect.Equal(t, "GET at the master, with the writes that too few confirmed", do(t, master, "GET", onstore.Key(store,
		"test", "x")), any("4"))
	mustBump(t, store, "x", 5)
	replicas[0].Resume()
	replicas[1].Resume()
	expect.Eventually(t, "both replicas confirm again", func() bool { _, err := bumped(t.Context(), store.WithAck(2), "y"); return err == nil })
}

// WAIT counts for the connection that wrote. On another it succeeds at once, so with a pool of
// several it would now and then.
func TestNoWriteIsConfirmedByAnotherConnection(t *testing.T) {
	t.Parallel()
	store, set := replicated(t)
	warm(t, store, 16)
	for _, replica := range set.Replicas() {
		replica.Pause()
	}
	const callers, calls = 8, 3
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range calls {
				if _, err := bumped(t.Context(), store.WithAck(1), "x"); !errors.Is(err, redisstore.ErrUnknownOutcome) {
					t.Errorf("got %v, want %v", err, redisstore.ErrUnknownOutcome)
				}
			}
		})
	}
	all.Wait()
	expect.Equal(t, "calls that ran", counted(t, store, "x"), callers*calls)
}

func TestReadsWaitForNoReplica(t *testing.T) {
	t.Parallel()
	store, set := replicated(t)
	for _, replica := range set.Replicas() {
		replica.Pause()
	}
	for range 5 {
		expect.Equal(t, "a read that asks for two replicas", counted(t, store.WithAck(2), "first"), 1)
	}
}

// A lost reply is asked for again over another connection, which has written nothing yet: the
// repeat must write for its acknowledgement to mean anything.
func TestRepeatOfAWriteIsConfirmedOnlyByReplicasThatHaveIt(t *testing.T) {
	t.Parallel()
	store, set := replicated(t)
	for _, replica := range set.Replicas() {
		replica.Pause()
	}
	token := func(name string) []string {
		return []string{onstore.Key(store, "token", name), onstore.SlotKey(store, "operations", "under-way", name)}
	}
	pool := []string{onstore.Key(store, "worker", "p"), onstore.Key(store, "worker", "p", "ends"), onstore.Key(store, "worker", "p", "names")}
	run := func(s *scripts.Script, keys []string, args ...any) scripts.Reply {
		t.Helper()
		reply, err := onstore.Run(t.Context(), store, s, keys, args...)
		expect.NoError(t, "Run", err)
		return reply
	}
	counted := []string{onstore.Key(store, "counter", "c"), onstore.Key(store, "counter", "c", "record"),
		onstore.SlotKey(store, "counters", "marker", "c"), onstore.Key(store, "counter", "c", "r")}
	run(scripts.CounterEra, counted[2:3], "", 1000)
	acquire := []any{"nonce", "", 1000, "trust", 0, "", "", "", "", "41/10/12", 0, 0, 10, 60_000, 0}
	lease := run(scripts.WorkerAcquire, pool, acquire...)
	claim := func(name string) []any {
		args := []any{"ann", "60000\t60000\tprint\thold\t\t\t\t", 60_000, "", "any", "", 60_000}
		run(scripts.TokenClaim, token(name), args...)
		return args
	}
	// A client's own key would be removed, and the repeat would find nothing.
	run(scripts.TokenIssue, token("release"), 60_000, "")
	for _, row := range []struct {
		script *scripts.Script
		keys   []string
		args   []any
	}{
		{scripts.TokenIssue, token("issue"), []any{60_000, ""}},
		{scripts.TokenClaim, token("claim"), claim("claim")},
		{scripts.TokenComplete, token("complete"), append(claim("complete")[:1:1], "done", "")},
		{scripts.TokenExtend, token("extend"), append(claim("extend")[:1:1], 60_000, 60_000, "")},
		{scripts.TokenRelease, token("release"), claim("release")[:1]},
		{scripts.CounterIncr, counted, []any{1, 60_000, "", "", "", 0, "begin"}},
		{scripts.WorkerAcquire, pool, acquire},
		{scripts.WorkerRenew, pool, []any{lease[1], "nonce", lease[2], 60_000, 1000, "wait", "", "", "", "", "", "", "", 0}},
		{scripts.WorkerRelease, pool[:2], []any{lease[1], "nonce", lease[2], "", 1000}},
	} {
		t.Run(row.script.Name, func(t *testing.T) {
			run(row.script, row.keys, row.args...) // what the first caller asked
			fresh := open(t, set.Master().URL(), func(c *redisstore.Config) { c.Ack, c.AckTimeout = 1, 100*time.Millisecond })
			_, err := onstore.Run(t.Context(), fresh, row.script, row.keys, row.args...)
			shortfall(t, err, 0, 1)
		})
	}
}

func TestRefusedWriteStaysRefusedWithAnAcknowledgement(t *testing.T) {
	t.Parallel()
	store, set := replicated(t)
	for _, replica := range set.Replicas() {
		replica.Pause()
	}
	do(t, set.Master(), "RPUSH", onstore.Key(store, "test", "list"), "a")
	_, err := bumped(t.Context(), store.WithAck(2), "list")
	if !errors.Is(err, redisstore.ErrWrongType) || errors.Is(err, redisstore.ErrUnknownOutcome) {
		t.Errorf("got %v, want %v", err, redisstore.ErrWrongType)
	}
}

// The answer to WAIT is not the script's: an error there must not read as if nothing had been
// written.
func TestRefusedAcknowledgementIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), nil)
	warm(t, store, 1)
	do(t, server, "ACL", "SETUSER", "default", "-wait")
	_, err := bumped(t.Context(), store.WithAck(1), "x")
	unknown(t, err)
	expect.Contains(t, "the error", err.Error(), "NOPERM")
	expect.Equal(t, "calls that ran", counted(t, store, "x"), 1)
}

func TestServerThatHangsBeforeItConfirms(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), func(c *redisstore.Config) { c.AckTimeout = 30 * time.Second })
	warm(t, store, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := bumped(ctx, store.WithAck(1), "x") // it has almost that long to confirm
		ended <- err
	}()
	expect.Eventually(t, "the script runs", func() bool { return do(t, server, "GET", onstore.Key(store, "test", "x")) == "1" })
	server.Pause()
	soon(t, func() { unknown(t, <-ended, context.DeadlineExceeded) })
	server.Resume()
	expect.Eventually(t, "the server answers", func() bool { return store.Ping(t.Context()) == nil })
	expect.Equal(t, "calls that ran", counted(t, store, "x"), 1)
}

func TestAcknowledgementEndsWithTheCallersDeadline(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Start(t).URL(), func(c *redisstore.Config) { c.Timeout, c.AckTimeout = time.Minute, 50*time.Second })
	warm(t, store, 1)
	soon(t, func() {
		_, err := bumped(hurried(t), store.WithAck(1), "x")
		unknown(t, err)
		expect.Equal(t, "calls that ran", counted(t, store, "x"), 1)
	})
}

// At a plain URL no list says which replicas there are, so none may be attached.
func TestAckAllAtAPlainURLIsRefusedWhileAReplicaIsAttached(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	store := open(t, master.URL(), all)
	mustBump(t, store, "x", 1) // there is none
	attach(t, replica, master, 1)
	expect.Eventually(t, "the replica is found", func() bool {
		_, err := bumped(t.Context(), store, "x")
		return errors.Is(err, redisstore.ErrUnsuitable)
	})
	_, err := bumped(t.Context(), open(t, master.URL(), all), "y")
	if !errors.Is(err, redisstore.ErrUnsuitable) {
		t.Errorf("a process that finds the replica at once: got %v, want %v", err, redisstore.ErrUnsuitable)
	}
	expect.Eventually(t, "a number is confirmed", func() bool { _, err := bumped(t.Context(), store.WithAck(1), "y"); return err == nil })
}

// A connection that is fed for a copy, as redis-cli --rdb is, cannot become master, and is not
// waited for.
func TestAckAllDoesNotWaitForACopy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL(), func(c *redisstore.Config) { c.Ack = redisstore.AckAll })
	mustBump(t, store, "x", 1)
	conn, err := net.Dial("tcp", server.Addr())
	expect.MustEqual(t, "error of a connection", err, nil)
	defer conn.Close()
	_, err = conn.Write([]byte("PSYNC ? -1\r\n"))
	expect.MustEqual(t, "error of PSYNC", err, nil)
	expect.Eventually(t, "it is fed", func() bool {
		return strings.Contains(do(t, server, "INFO", "replication").(string), "connected_slaves:1")
	})
	mustBump(t, store, "x", 2)
	mustBump(t, store, "x", 3)
}

// Replicas that Sentinel or the cluster lists are waited for while they are away, also by a process
// that has never seen them.
func TestAckAllCountsListedReplicasThatAreAway(t *testing.T) {
	t.Parallel()
	all := func(c *redisstore.Config) { c.Ack, c.AckTimeout = redisstore.AckAll, 2*time.Second }
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		set := redistest.StartSentinel(t, 2)
		expect.Eventually(t, "both confirm", func() bool { _, err := bumped(t.Context(), open(t, set.URL(), all), "x"); return err == nil })
		set.Replicas()[0].Kill()
		away(t, set.Master(), 1)
		_, err := bumped(t.Context(), open(t, set.URL(), all), "x")
		shortfall(t, err, 1, 2)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 3, 1)
		store := open(t, cluster.URL(), all)
		expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
		master := cluster.MasterOf(onstore.Key(store, "test", "x"))
		_, port, _ := strings.Cut(master.Addr(), ":")
		for _, node := range cluster.Nodes() {
			if strings.Contains(do(t, node, "INFO", "replication").(string), "master_port:"+port+"\r") {
				node.Kill()
			}
		}
		away(t, master, 0)
		_, err := bumped(t.Context(), open(t, cluster.URL(), all), "x")
		shortfall(t, err, 0, 1)
	})
}

// away waits until a master has so many replicas left.
func away(t *testing.T, master *redistest.Server, left int) {
	t.Helper()
	expect.Eventually(t, "a replica is away", func() bool {
		return strings.Contains(do(t, master, "INFO", "replication").(string), fmt.Sprint("connected_slaves:", left, "\r"))
	})
}
