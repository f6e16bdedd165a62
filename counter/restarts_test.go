package counter_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
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
		{"always", redisstore.AutoRestarts, false},
		{"always", redisstore.WaitRestarts, true},
		{"everysec", redisstore.AutoRestarts, true},
		{"everysec", redisstore.TrustRestarts, false},
	} {
		t.Run(fmt.Sprint(row.fsync, " ", row.restarts), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", row.fsync)
			before := process(t, server.URL(), judged(row.restarts))
			before.countTo(t, "k", 50)
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
			if row.restarts == redisstore.TrustRestarts {
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
			[]func(*redisstore.Config, *counter.Config){acknowledged(redisstore.AckAll), judged(redisstore.WaitRestarts)}, false},
		{"trusted", []func(*redisstore.Config, *counter.Config){acknowledged(1), judged(redisstore.TrustRestarts)}, false},
		{"confirmed by none", nil, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			set := redistest.StartSentinel(t, 1)
			before := process(t, set.URL(), row.what...)
			before.countTo(t, "k", 50)
			replica := set.Replicas()[0]
			expect.Eventually(t, "the replica has it", func() bool {
				return replica.Client().Get(t.Context(), before.store.Key("counter", "k")).Val() == "50"
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
		return replica.Client().Get(t.Context(), c.store.Key("counter", "k")).Val() == "5"
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
			key := first.store.Key("counter", "k")
			given := map[int64]bool{}
			use := func(c counters, when string) {
				t.Helper()
				for range 2 {
					value := c.next(t, "k")
					if given[value] {
						t.Errorf("%s: got %d again", when, value)
					}
					given[value] = true
				}
			}
			use(first, "at the first master")
			there := cluster.StartMove(key)
			there.Rest(0)
			there.Finish()
			do(t, there.To, "SAVE")
			use(process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "at the second one")
			time.Sleep(4 * time.Second) // losses that are closer together may come to one value
			there.To.Kill()
			there.To.Restart()
			if returns {
				expect.Eventually(t, "the cluster is whole again", func() bool {
					return strings.Contains(there.To.Client().ClusterInfo(t.Context()).Val(), "cluster_state:ok")
				})
				back := there.StartBack()
				back.Rest(0)
				back.Finish()
			}
			use(process(t, cluster.URL(), acknowledged(redisstore.AckAll)), "after the loss, in a process that starts then")
			use(first, "in the first process")
		})
	}
}
