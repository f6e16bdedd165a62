package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// on fails the test unless a server holds a key with that value.
func on(t *testing.T, server *redistest.Server, key, value string) {
	t.Helper()
	do(t, server, "ASKING")
	expect.Equal(t, key+" at "+server.Addr(), do(t, server, "GET", key), any(value))
}

func TestStoreFollowsASlotThatMoves(t *testing.T) {
	t.Parallel()
	for ack, replicas := range []int{0, 1} {
		t.Run(fmt.Sprintf("ack %d", ack), func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, replicas)
			store := open(t, cluster.URL(), func(c *redisstore.Config) { c.Ack, c.AckTimeout = ack, 30*time.Second })
			mustBump(t, store, "here", 1)
			m := cluster.StartMove(onstore.Key(store, "test", "here"))
			mustBump(t, store, "here", 2) // still where it was

			m.Key(onstore.Key(store, "test", "here"))
			for i := range int64(3) { // ASK
				mustBump(t, store, "here", 3+i)
			}
			flush(t, store)
			mustBump(t, store, "here", 6) // ASK, and the script is not known there
			flush(t, store)
			expect.Equal(t, "a read while the slot moves", counted(t, store, "here"), 6)
			// a key that was on neither
			reply, err := onstore.Run(t.Context(), store, bump, []string{onstore.Key(store, "new", "here")})
			if err != nil || reply[1] != "1" {
				t.Errorf("got %q, %v", reply, err)
			}
			on(t, m.To, onstore.Key(store, "test", "here"), "6")

			m.Finish()
			for i := range int64(5) { // MOVED
				mustBump(t, store, "here", 7+i)
			}
			fresh := open(t, cluster.URL(), nil)
			mustBump(t, fresh, "here", 12)
			for i := range 50 { // every master
				mustBump(t, store, fmt.Sprint("spread", i), 1)
			}
		})
	}
}

// pair needs both of its keys.
var pair = script("pair", "redis.call('INCR', KEYS[1]) return {'ok', tostring(redis.call('INCR', KEYS[2]))}", false)

func TestKeysThatAreApartWhileTheirSlotMovesAreRefused(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), nil)
	keys := []string{onstore.Key(store, "a", "pair"), onstore.Key(store, "b", "pair")}
	for range 2 {
		if _, err := onstore.Run(t.Context(), store, pair, keys); err != nil {
			t.Fatalf("Run: got error %v, want none", err)
		}
	}
	m := cluster.StartMove(keys[0])
	if reply, err := onstore.Run(t.Context(), store, pair, keys); err != nil || reply[1] != "3" {
		t.Errorf("both still where they were: got %q, %v", reply, err)
	}
	m.Key(keys[0])
	_, err := onstore.Run(t.Context(), store, pair, keys)
	refused(t, err)
	expect.Contains(t, "the error", err.Error(), "TRYAGAIN")
	on(t, m.To, keys[0], "3")
	on(t, m.From, keys[1], "3")
	m.Key(keys[1])
	if reply, err := onstore.Run(t.Context(), store, pair, keys); err != nil || reply[1] != "4" {
		t.Errorf("both moved: got %q, %v", reply, err)
	}
	m.Finish()
	if reply, err := onstore.Run(t.Context(), store, pair, keys); err != nil || reply[1] != "5" {
		t.Errorf("the slot moved: got %q, %v", reply, err)
	}
}

func TestKeysOfSeveralSlotsAreRefused(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), nil)
	keys := []string{onstore.Key(store, "a", "one"), onstore.Key(store, "a", "other")}
	for _, view := range []*redisstore.Store{store, store.WithAck(1)} {
		_, err := onstore.Run(t.Context(), view, pair, keys)
		refused(t, err)
		expect.Contains(t, "the error", err.Error(), "CROSSSLOT")
	}
}

func TestOneAddressLeadsToTheWholeCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	dead := redistest.Start(t)
	dead.Kill()
	for name, hosts := range map[string]string{
		"one":               cluster.Nodes()[1].Addr(),
		"one, and one dead": dead.Addr() + "," + cluster.Nodes()[2].Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, "redis+cluster://"+hosts, nil)
			for i := range 30 {
				mustBump(t, store, fmt.Sprint(name, i), 1)
			}
			expect.Error(t, "Ping", store.Ping(t.Context()), nil)
		})
	}
	for _, node := range cluster.Nodes() {
		if n := do(t, node, "DBSIZE"); n == int64(0) {
			t.Errorf("%s holds nothing", node.Addr())
		}
	}
	soon(t, func() {
		store := open(t, "redis+cluster://"+dead.Addr(), nil)
		_, err := bumped(t.Context(), store, "x")
		refused(t, err)
		refused(t, store.Ping(t.Context()))
	})
	alone := redistest.Start(t) // no cluster at all
	soon(t, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := bumped(ctx, open(t, strings.Replace(alone.URL(), "redis://", "redis+cluster://", 1), nil), "x")
		if err != nil { // go-redis may take it for a cluster of one
			refused(t, err)
		}
	})
}

func TestStoreFollowsAClustersFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	store := open(t, cluster.URL(), func(c *redisstore.Config) { c.Timeout = 5 * time.Second })
	if _, err := bumped(t.Context(), store.WithAck(1), "x"); err != nil {
		t.Fatalf("adding one to a record: got error %v, want none", err)
	}
	key := onstore.Key(store, "test", "x")
	old := cluster.MasterOf(key)
	old.Kill()
	uncertain, failed := int64(0), 0
	var n int64
	expect.Eventually(t, "a call succeeds again, by itself", func() bool {
		var err error
		if n, err = bumped(t.Context(), store, "x"); err != nil {
			failed++
			inClass(t, err)
			if errors.Is(err, redisstore.ErrUnknownOutcome) {
				uncertain++
			}
		}
		return err == nil
	})
	if failed == 0 {
		t.Error("no call noticed that the master was killed")
	}
	if n < 2 || n > 2+uncertain {
		t.Errorf("the second call that succeeded got %d, %d may have run in between", n, uncertain)
	}
	for i := range int64(20) {
		mustBump(t, store, "x", n+1+i)
	}
	if cluster.MasterOf(key) == old {
		t.Error("there was no failover")
	}
	expect.Eventually(t, "every master answers", func() bool { return store.Ping(t.Context()) == nil })
}

func TestClusterThatLacksAMasterRefuses(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	store := open(t, cluster.URL(), func(c *redisstore.Config) { c.Timeout = 5 * time.Second })
	dead := cluster.MasterOf(onstore.Key(store, "test", "dead"))
	living := ""
	for i := 0; living == ""; i++ {
		if name := fmt.Sprint("living", i); cluster.MasterOf(onstore.Key(store, "test", name)) != dead {
			living = name
		}
	}
	mustBump(t, store, "dead", 1)
	mustBump(t, store, living, 1)
	dead.Kill()
	expect.Eventually(t, "the cluster finds itself incomplete", func() bool {
		_, err := bumped(t.Context(), store, living)
		if err != nil {
			refused(t, err)
		}
		return err != nil && strings.Contains(err.Error(), "CLUSTERDOWN")
	})
	for range 10 {
		_, err := bumped(t.Context(), store, "dead")
		inClass(t, err)
	}
	dead.Restart()
	for _, name := range []string{"dead", living} {
		expect.Eventually(t, "the cluster serves "+name, func() bool { _, err := bumped(t.Context(), store, name); return err == nil })
	}
}

// A replica that its master was told to forget may be elected all the same, by masters that know
// it.
func TestReplicaThatItsMasterForgotHasToConfirm(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	first := open(t, cluster.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), first, "x"); return err == nil })
	master, gone := masterAndReplica(t, cluster, onstore.Key(first, "test", "x"))
	gone.Kill()
	away(t, master, 0)
	for line := range strings.SplitSeq(do(t, master, "CLUSTER", "NODES").(string), "\n") {
		if id, rest, _ := strings.Cut(line, " "); strings.HasPrefix(rest, gone.Addr()+"@") {
			do(t, master, "CLUSTER", "FORGET", id)
		}
	}
	// a process that runs, and one that starts
	for _, store := range []*redisstore.Store{first, open(t, cluster.URL(), all)} {
		_, err := bumped(t.Context(), store, "x")
		shortfall(t, err, 0, 1)
	}
}

// A replica may tell its master another address than the cluster lists. Nothing is confirmed then,
// and the error has the address that is missing.
func TestReplicaUnderAnotherAddressThanTheListHasIsNamed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	store := open(t, cluster.URL(), all)
	expect.Eventually(t, "it confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	master, replica := masterAndReplica(t, cluster, onstore.Key(store, "test", "x"))
	says := func(address string) {
		do(t, replica, "CONFIG", "SET", "replica-announce-ip", address)
		do(t, master, "CLIENT", "KILL", "TYPE", "replica")
		expect.Eventually(t, "it is attached as "+address, func() bool {
			return strings.Contains(do(t, master, "INFO", "replication").(string), "ip="+cmp.Or(address, "127.0.0.1")+",") &&
				strings.Contains(do(t, master, "INFO", "replication").(string), "state=online")
		})
	}
	says("127.0.0.9")
	expect.Eventually(t, "the error has the address", func() bool {
		_, err := bumped(t.Context(), store, "x")
		short, is := errors.AsType[*redisstore.ShortfallError](err)
		return is && *short == redisstore.ShortfallError{Want: 2, Got: 1, Missing: replica.Addr() + ", which is not attached"}
	})
	says("")
	expect.Eventually(t, "the address that nobody has leaves", func() bool {
		_, err := store.ReplicasGone(t.Context(), strings.Replace(replica.Addr(), "127.0.0.1", "127.0.0.9", 1))
		return err == nil
	})
	expect.Eventually(t, "it confirms again", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
}

// Nodes that announce host names, and prefer them, are listed by their addresses all the same.
func TestClusterThatAnnouncesHostNamesConfirms(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	for _, node := range cluster.Nodes() {
		do(t, node, "CONFIG", "SET", "cluster-announce-hostname", "localhost", "cluster-preferred-endpoint-type", "hostname")
	}
	expect.Eventually(t, "all nodes show names", func() bool {
		return strings.Count(do(t, cluster.Nodes()[0], "CLUSTER", "NODES").(string), ",localhost") == len(cluster.Nodes())
	})
	store := open(t, strings.ReplaceAll(cluster.URL(), "127.0.0.1", "localhost"), all)
	expect.Eventually(t, "its replica confirms", func() bool { _, err := bumped(t.Context(), store, "x"); return err == nil })
	_, replica := masterAndReplica(t, cluster, onstore.Key(store, "test", "x"))
	replica.Kill()
	expect.Eventually(t, "it is waited for", func() bool {
		_, err := bumped(t.Context(), store, "x")
		short, is := errors.AsType[*redisstore.ShortfallError](err)
		return is && short.Want == 1 && strings.HasPrefix(short.Missing, replica.Addr())
	})
}

func masterAndReplica(t *testing.T, cluster *redistest.Cluster, key string) (master, replica *redistest.Server) {
	t.Helper()
	master = cluster.MasterOf(key)
	for _, node := range cluster.Nodes() {
		_, port, _ := strings.Cut(master.Addr(), ":")
		if strings.Contains(do(t, node, "INFO", "replication").(string), "master_port:"+port+"\r") {
			return master, node
		}
	}
	t.Fatal("there is no replica")
	return nil, nil
}

// A replica that was away while another was promoted may come back and be promoted with what it had
// then. Until it follows the new master it is listed as a replica of the one before.
func TestReplicaThatWasAwayDuringAPromotionHasToConfirm(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 2)
	first := open(t, cluster.URL(), all)
	expect.Eventually(t, "they confirm", func() bool { _, err := bumped(t.Context(), first, "x"); return err == nil })
	master, away := masterAndReplica(t, cluster, onstore.Key(first, "test", "x"))
	away.Kill()
	master.Kill()
	var heir *redistest.Server
	expect.Eventually(t, "the other replica is the master", func() bool {
		for _, node := range cluster.Nodes()[3:] {
			// those that were killed answer nothing
			info := node.Client().Info(t.Context(), "replication").Val()
			if strings.Contains(info, "role:master") {
				heir = node
			}
		}
		return heir != nil
	})
	for name, store := range map[string]*redisstore.Store{"a process that runs": first, "one that starts": open(t, cluster.URL(), all)} {
		expect.Eventually(t, name+": it asks, and waits", func() bool {
			_, err := bumped(t.Context(), store, "x")
			if err == nil {
				t.Fatalf("%s: a write without the replica that is away is confirmed", name)
			}
			var short *redisstore.ShortfallError
			return errors.As(err, &short) && short.Want == 2 // the former master is away, too
		})
	}
	away.Restart()
	master.Restart()
	expect.Eventually(t, "they are back, and confirm", func() bool { _, err := bumped(t.Context(), first, "x"); return err == nil })
}
