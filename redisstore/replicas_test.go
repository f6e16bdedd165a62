package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
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

// A write that finds a replica is outcome-unknown, and those after it wait for the replica, also if
// it goes away before the process asks again, and in a process that has never seen it.
func TestReplicaThatAWriteHasFoundIsKnownToTheNextProcess(t *testing.T) {
	t.Parallel()
	master, first, second := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	attach(t, first, master, 1) // a master renames its history for its first replica
	store := open(t, master.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	attach(t, second, master, 2)
	_, err := bumped(t.Context(), store, "x")
	shortfall(t, err, 1, 2)
	second.Kill()
	away(t, master, 1)
	_, err = bumped(t.Context(), open(t, master.URL(), all), "z")
	shortfall(t, err, 1, 2)
}

// WAIT counts whoever has the write, also one that has attached since it was sent: that does not
// confirm in the place of one that lags.
func TestReplicaThatComesWhileAWriteWaitsConfirmsForNoOther(t *testing.T) {
	t.Parallel()
	master, lags, comes := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	attach(t, lags, master, 1)
	store := open(t, master.URL(), func(c *redisstore.Config) {
		c.Ack, c.AckTimeout, c.Timeout = redisstore.AckAll, 30*time.Second, time.Minute
	})
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	lags.Pause()
	answered := make(chan error)
	go func() { _, err := bumped(t.Context(), store, "x"); answered <- err }()
	expect.Eventually(t, "the write waits", func() bool {
		return strings.Contains(do(t, master, "INFO", "clients").(string), "blocked_clients:1\r")
	})
	attach(t, comes, master, 2)
	shortfall(t, <-answered, 1, 2)
}

// Behind one address, as of a network that is translated, there may be several replicas.
func TestReplicasBehindOneAddressAllHaveToConfirm(t *testing.T) {
	t.Parallel()
	master, gone := redistest.Start(t), redistest.Start(t)
	for i, replica := range []*redistest.Server{redistest.Start(t), gone} {
		do(t, replica, "CONFIG", "SET", "replica-announce-ip", "10.0.0.9")
		do(t, replica, "CONFIG", "SET", "replica-announce-port", "6379")
		attach(t, replica, master, i+1)
	}
	first := open(t, master.URL(), all)
	expect.Eventually(t, "both confirm", func() bool { _, err := bumped(t.Context(), first, "x"); return err == nil })
	gone.Kill()
	away(t, master, 1)
	_, err := bumped(t.Context(), open(t, master.URL(), all), "z")
	shortfall(t, err, 1, 2)
}

// A master that starts from an RDB file shows the history in that file as the one before its own,
// as one that was promoted does. The replica that is away is none of its past.
func TestReplicaThatIsAwayWhileTheMasterRestartsHasToConfirm(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	attach(t, replica, master, 1)
	first := open(t, master.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), first, "x"); return err == nil })
	do(t, master, "SAVE")
	replica.Kill()
	away(t, master, 0)
	master.Kill()
	master.Restart()
	if info := do(t, master, "INFO", "replication").(string); strings.Contains(info, "master_replid2:0000000000") {
		t.Fatalf("the file names no history: %s", info)
	}
	_, err := bumped(t.Context(), open(t, master.URL(), all), "z")
	shortfall(t, err, 0, 1)
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
