package counter_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/engines"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// An attempt that is not answered may take a value, and nothing else is left out.
func wantSoonAfter(t *testing.T, what string, got, last int64) {
	t.Helper()
	if got <= last || got >= last+margin {
		t.Errorf("%s: got %d, want one soon after %d", what, got, last)
	}
}

func judged(restarts redisstore.Restarts) func(*redisstore.Config, *counter.Config) {
	return func(c *redisstore.Config, _ *counter.Config) { c.Restarts = restarts }
}

// What was confirmed is on disk, or it is believed to be: nothing is left out, neither by the
// process that goes on nor by one that is new. Else the counter moves.
func TestRestartMovesACounterOnlyWhereItMayHaveLostSomething(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		fsync    string
		restarts redisstore.Restarts
		moves    bool
	}{
		{"always", redisstore.RestartsAuto, false},
		{"always", redisstore.RestartsWait, true},
		{"everysec", redisstore.RestartsAuto, true},
		{"everysec", redisstore.RestartsTrust, false},
	} {
		t.Run(fmt.Sprint(row.fsync, " ", row.restarts), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", row.fsync)
			before := process(t, server.URL(), judged(row.restarts))
			before.countTo(t, "k", 50)
			if !row.moves { // a busy server with everysec writes up to two seconds late
				expect.Eventually(t, "the server has written all", func() bool {
					return strings.Contains(server.Client().Info(t.Context(), "persistence").Val(), "aof_buffer_length:0\r")
				})
			}
			server.Kill()
			server.Restart()
			last := before.next(t, "k")
			if row.moves {
				if last <= 50+margin {
					t.Errorf("the next value of the process that goes on: got %d, want one after %d", last, 50+margin)
				}
			} else {
				wantSoonAfter(t, "the next value of the process that goes on", last, 50)
			}
			process(t, server.URL(), judged(row.restarts)).gets(t, "k", last+1)
			if row.restarts == redisstore.RestartsTrust {
				process(t, server.URL()).gets(t, "k", last+1+margin+1) // it believes no other
			}
		})
	}
}

func TestFailoverMovesACounterOnlyWhereItMayHaveLostSomething(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		what  []func(*redisstore.Config, *counter.Config)
		moves bool
	}{
		{"confirmed by a number", []func(*redisstore.Config, *counter.Config){acknowledged(1)}, true},
		{"confirmed by all", []func(*redisstore.Config, *counter.Config){acknowledged(redisstore.AckAll)}, false},
		{"confirmed by all, and no restart is believed",
			[]func(*redisstore.Config, *counter.Config){acknowledged(redisstore.AckAll), judged(redisstore.RestartsWait)}, false},
		{"trusted", []func(*redisstore.Config, *counter.Config){acknowledged(1), judged(redisstore.RestartsTrust)}, false},
		{"confirmed by none", nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			set := redistest.StartSentinel(t, 1)
			before := process(t, set.URL(), row.what...)
			before.countTo(t, "k", 50)
			replica := set.Replicas()[0]
			expect.Eventually(t, "the replica has it", func() bool {
				return replica.Client().Get(t.Context(), onstore.Key(before.store, "counter", "k")).Val() == "50"
			})
			old := set.Master()
			old.Kill()
			set.WaitForMaster(old)
			old.Restart() // as a replica, to confirm
			for _, c := range []counters{process(t, set.URL(), row.what...), before} {
				last := c.next(t, "k")
				if row.moves {
					if last <= 50+margin {
						t.Errorf("the next value after a failover: got %d, want one after %d", last, 50+margin)
					}
					continue
				}
				wantSoonAfter(t, "the next value after a failover", last, 50)
			}
		})
	}
}

// A proxy leads to the replica, which was promoted, and clients keep their connections. The
// increment that ran there first is a gap.
func TestIncrementOverAPromotionBehindAProxyIsAGap(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t)
	follow(t, replica, master)
	proxy := engines.Start(t, master.Addr(), engines.Engine{})
	c := process(t, proxy.URL())
	for value := range int64(5) {
		c.gets(t, "k", value+1)
	}
	expect.Eventually(t, "the replica has it", func() bool {
		return replica.Client().Get(t.Context(), onstore.Key(c.store, "counter", "k")).Val() == "5"
	})
	do(t, replica, "REPLICAOF", "NO", "ONE")
	follow(t, master, replica)
	connections := proxy.Accepted()
	proxy.Behind(replica.Addr())
	c.gets(t, "k", 6+margin+1)
	c.gets(t, "k", 6+margin+2)
	expect.Equal(t, "connections that were made since", proxy.Accepted()-connections, 0)
}

// follow makes a server a replica of another, and waits until it confirms writes.
func follow(t *testing.T, replica, master *redistest.Server) {
	t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	do(t, replica, "REPLICAOF", host, port)
	expect.Eventually(t, "the replica confirms writes", func() bool {
		conn := master.Client().Conn()
		defer conn.Close()
		_ = conn.Set(t.Context(), "follow", "x", 0).Err()
		n, err := conn.Wait(t.Context(), 1, time.Second).Result()
		return err == nil && n == 1
	})
}

// A proxy keeps clients' connections while the server after it is replaced by one with older data.
// Nothing comes twice, to none of two processes.
func TestNoValueTwiceWhenAProxyLeadsToOlderData(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]func(t *testing.T, server *redistest.Server) (replace func() (addr string)){
		"a server that starts from an old file": func(t *testing.T, server *redistest.Server) func() string {
			do(t, server, "SAVE")
			return func() string {
				server.Kill()
				server.Restart()
				return server.Addr()
			}
		},
		"a replica that was cut off": func(t *testing.T, server *redistest.Server) func() string {
			replica := redistest.Start(t)
			follow(t, replica, server)
			do(t, replica, "REPLICAOF", "NO", "ONE")
			return replica.Addr
		},
		"a server that is empty": func(t *testing.T, server *redistest.Server) func() string {
			return redistest.Start(t).Addr
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := engines.Start(t, server.Addr(), engines.Engine{})
			far := func(_ *redisstore.Config, c *counter.Config) { c.Margin = 100_000 }
			load := startLoad(t, process(t, proxy.URL(), far), process(t, proxy.URL(), far))
			replace := age(t, server)
			load.goesOn()
			proxy.Behind(replace())
			load.goesOn()
			load.end()
			load.once(t)
		})
	}
}

// A slot moves, and its new master hands values out and starts from an older file. The slot stays
// there, or comes back before it was used: its former master finds its own note again. No value
// comes twice, also in a process that starts then.
func TestSlotWhoseNewMasterStartsFromOlderDataHandsNoValueOutTwice(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"it stays": false, "it comes back": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, 0)
			first := process(t, cluster.URL(), acknowledged(redisstore.AckAll))
			key := onstore.Key(first.store, "counter", "k")
			given := values{}
			given.use(t, first, "at the first master")
			there := cluster.StartMove(key)
			there.Rest(0)
			there.Finish()
			do(t, there.To, "SAVE")
			given.use(t, process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "at the second one")
			time.Sleep(apart)
			there.To.Kill()
			there.To.Restart()
			if returns {
				whole(t, there.To)
				back := there.StartBack()
				back.Rest(0)
				back.Finish()
			}
			given.use(t, process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "after the loss, in a process that starts then")
			given.use(t, first, "in the first process")
		})
	}
}

// The move after a loss is lost itself: the server starts from the same file again. Another process
// moves the counter from the same value, and further.
func TestMoveThatIsLostItselfHandsNoValueOutTwice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	given := values{}
	given.use(t, process(t, server.URL()), "at first")
	do(t, server, "SAVE")
	for range 3 {
		server.Kill()
		server.Restart()
		given.use(t, process(t, server.URL()), "after a loss, in a process that starts then")
		time.Sleep(apart)
	}
}

// apart is how long after each other two losses come to different values (docs/guarantees.md).
const apart = 4 * time.Second

// values are those of the counter k that were handed out.
type values map[int64]bool

// use takes two values, and fails the test if one of them was handed out before.
func (v values) use(t *testing.T, c counters, when string) {
	t.Helper()
	for range 2 {
		v.add(t, c.next(t, "k"), when)
	}
}

func (v values) add(t *testing.T, value int64, when string) {
	t.Helper()
	if v[value] {
		t.Errorf("%s: got %d again", when, value)
	}
	v[value] = true
}

// whole waits until a node of a cluster finds it in order.
func whole(t *testing.T, node *redistest.Server) {
	t.Helper()
	expect.Eventually(t, "the cluster is whole again", func() bool {
		return strings.Contains(node.Client().ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	})
}

// A master is back from an older file, and imports a slot: Redis 8.6 counts what it reads for that
// as read from a master, as a replica's that was promoted.
func TestMasterFromOlderDataThatImportsASlotHandsNoValueOutTwice(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	first := process(t, cluster.URL(), acknowledged(redisstore.AckAll))
	key, given := onstore.Key(first.store, "counter", "k"), values{}
	given.use(t, first, "at first")
	master := cluster.MasterOf(key)
	do(t, master, "SAVE")
	given.use(t, process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "after the file was written")
	time.Sleep(apart)
	master.Kill()
	master.Restart()
	whole(t, master)
	cluster.Import(master)
	given.use(t, process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "after the loss, in a process that starts then")
	given.use(t, first, "in the first process")
}

// In a cluster a backup costs nothing, also after an import, though a master without a replica
// renames its history for it.
func TestBackupInAClusterCostsNothing(t *testing.T) {
	t.Parallel()
	for name, imports := range map[string]bool{"at first": false, "after an import": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, 0)
			c := process(t, cluster.URL())
			at := c.next(t, "k")
			master := cluster.MasterOf(onstore.Key(c.store, "counter", "k"))
			if imports {
				cluster.Import(master)
				at = c.next(t, "k")
			}
			for range 2 {
				master.Backup()
				at++
				expect.Equal(t, "value after a backup", c.next(t, "k"), at)
			}
		})
	}
}

// A master starts anew as a stranger at its address. Its replica starts from an older file while
// its master has no address, and becomes master under the id that it had: by itself where the
// engine does that, else by an operator.
func TestReplicaThatBecomesMasterUnderItsOldIDHandsNoValueOutTwice(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	for _, node := range cluster.Nodes() {
		do(t, node, "CONFIG", "SET", "cluster-replica-validity-factor", 0)
		do(t, node, "CONFIG", "REWRITE")
	}
	first := process(t, cluster.URL(), acknowledged(redisstore.AckAll))
	given := values{}
	given.use(t, first, "at first")
	master := cluster.MasterOf(onstore.Key(first.store, "counter", "k"))
	_, port, _ := net.SplitHostPort(master.Addr())
	var replica, other *redistest.Server
	var left []string
	for _, node := range cluster.Nodes() {
		if node == master {
			continue
		}
		left = append(left, node.Addr())
		if infoOf(t, node, "master_port") == port {
			replica = node
		} else if infoOf(t, node, "role") == "master" {
			other = node
		}
	}
	do(t, replica, "SAVE")
	given.use(t, process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "after the file was written")
	id := infoOf(t, replica, "master_replid")
	// until its next start it neither is promoted nor reads from the stranger
	do(t, replica, "CONFIG", "SET", "cluster-replica-no-failover", "yes", "masterauth", "another")

	replica.Pause()
	master.RestartUnknown()
	strange := func(at *redistest.Server) func() bool {
		return func() bool { return strings.Contains(at.Client().ClusterNodes(t.Context()).Val(), "noaddr") }
	}
	expect.Eventually(t, "the others know that the master is gone", strange(other))
	replica.Resume()
	expect.Eventually(t, "the replica knows it, too", strange(replica))
	replica.Kill()
	replica.Restart()
	expect.Eventually(t, "the replica is master", func() bool {
		_ = replica.Client().Do(t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err()
		return infoOf(t, replica, "role") == "master"
	})
	expect.MustEqual(t, "its id", infoOf(t, replica, "master_replid"), id)

	url := "redis+cluster://" + strings.Join(left, ",")
	after := process(t, url, acknowledged(redisstore.AckAll))
	if value, err := after.Incr(t.Context(), "k"); err == nil {
		given.add(t, value, "while the place of the former master has not confirmed")
	}
	expect.Eventually(t, "an operator says that the former master is gone", func() bool {
		_, err := after.store.ReplicasGone(t.Context())
		return err == nil
	})
	given.use(t, after, "after the loss, in a process that starts then")
}

// infoOf is a field of INFO replication.
func infoOf(t *testing.T, server *redistest.Server, name string) string {
	t.Helper()
	_, rest, _ := strings.Cut(server.Client().Info(t.Context(), "replication").Val(), "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// A replica that takes writes shows its master's id, and lags. A process that was started when the
// server was a master gets nothing.
func TestWritableReplicaHandsNothingOut(t *testing.T) {
	t.Parallel()
	master, replica := redistest.Start(t), redistest.Start(t, "--replica-read-only", "no")
	here, there := process(t, master.URL()), process(t, replica.URL())
	given := values{}
	given.use(t, here, "at the master")
	link := redistest.StartProxy(t, master.Addr(), nil)
	host, port, _ := net.SplitHostPort(link.Addr())
	do(t, replica, "REPLICAOF", host, port)
	expect.Eventually(t, "the replica follows", func() bool { return infoOf(t, replica, "master_link_status") == "up" })
	last := here.next(t, "k") // under the name that the history has since
	given.add(t, last, "at the master")
	expect.Eventually(t, "the replica has what its master has", func() bool {
		return replica.Client().Get(t.Context(), onstore.Key(here.store, "counter", "k")).Val() == fmt.Sprint(last)
	})
	link.SwallowAnswers()
	given.use(t, here, "at the master")
	for range 3 {
		if value, err := there.Incr(t.Context(), "k"); err == nil {
			given.add(t, value, "at the replica")
		} else if !errors.Is(err, redisstore.ErrRefused) && !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("at the replica: got error %v, want a refusal", err)
		}
	}
	given.use(t, here, "at the master")
}
