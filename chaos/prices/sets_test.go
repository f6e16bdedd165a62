//go:build nightly

package prices

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// set is several Redis servers of which one is master.
type set interface {
	url() string
	servers() []*redistest.Server
	master() *redistest.Server             // of the slot that all names here share
	failedOver(not *redistest.Server) bool // another one than that is master
	failOver(t *testing.T)                 // has a master replaced that works, as an operator would
}

// settings are those of a set.
type settings struct {
	syncDelay int           // repl-diskless-sync-delay, in seconds; Redis's default is 5
	told      bool          // a former master is told at once whom to follow, and not by Sentinel
	downAfter time.Duration // for which a server is silent that is held to be down
}

// published are the settings of docs/operations.md.
var published = settings{syncDelay: 0, told: true, downAfter: 5 * time.Second}

// defaults are Redis's own where the page has another one.
var defaults = settings{syncDelay: 5, downAfter: 5 * time.Second}

// sentinels is a Sentinel set with the periods that Sentinel has in production: package redistest
// shortens them.
type sentinels struct {
	t        *testing.T
	set      *redistest.SentinelSet
	replicas int
}

func startSentinels(t *testing.T, replicas int, with settings) set {
	s := &sentinels{t: t, set: redistest.StartSentinel(t, replicas), replicas: replicas}
	for _, sentinel := range s.set.Sentinels() {
		chaostest.Do(t, sentinel, "SENTINEL", "SET", "coatcheck", "down-after-milliseconds", with.downAfter.Milliseconds())
		chaostest.Do(t, sentinel, "SENTINEL", "SET", "coatcheck", "failover-timeout", 20_000)
		chaostest.Do(t, sentinel, "SENTINEL", "DEBUG", "publish-period", "2000", "info-period", "10000", "ping-period", "1000")
	}
	configure(t, s.servers(), with, min(replicas, 1))
	return s
}

func configure(t *testing.T, servers []*redistest.Server, with settings, least int) {
	for _, server := range servers {
		chaostest.Do(t, server, "CONFIG", "SET", "repl-diskless-sync-delay", with.syncDelay, "repl-backlog-size", "64mb",
			"min-replicas-to-write", least, "min-replicas-max-lag", 10, "appendonly", "yes")
		chaostest.Do(t, server, "CONFIG", "REWRITE")
	}
}

func (s *sentinels) url() string               { return s.set.URL() }
func (s *sentinels) master() *redistest.Server { return s.set.Master() }

func (s *sentinels) servers() []*redistest.Server {
	return append([]*redistest.Server{s.set.Master()}, s.set.Replicas()...)
}

func (s *sentinels) failedOver(not *redistest.Server) bool {
	return s.set.WaitForMaster(not) != not
}

func (s *sentinels) failOver(t *testing.T) { chaostest.AskForFailover(t.Context(), t, s.set) }

// cluster is a cluster of three masters with replicas each.
type cluster struct {
	set *redistest.Cluster
}

func startCluster(t *testing.T, replicas int, with settings) set {
	c := &cluster{redistest.StartCluster(t, 3, replicas)}
	for _, server := range c.servers() {
		chaostest.Do(t, server, "CONFIG", "SET", "cluster-node-timeout", with.downAfter.Milliseconds(), "cluster-allow-replica-migration", "no")
	}
	configure(t, c.servers(), with, min(replicas, 1))
	return c
}

func (c *cluster) url() string                  { return c.set.URL() }
func (c *cluster) servers() []*redistest.Server { return c.set.Nodes() }
func (c *cluster) master() *redistest.Server    { return c.set.MasterOf("{" + name + "}") }

func (c *cluster) failedOver(not *redistest.Server) bool { return c.master() != not }

func (c *cluster) failOver(t *testing.T) {
	replicas := replicasOf(t, c, c.master())
	chaostest.Do(t, replicas[0], "CLUSTER", "FAILOVER")
}

// replicasOf are the servers that a master lists.
func replicasOf(t *testing.T, in set, master *redistest.Server) (replicas []*redistest.Server) {
	t.Helper()
	info, err := master.Client().Info(t.Context(), "replication").Result()
	if err != nil {
		t.Fatalf("INFO replication of %s: %v", master.Addr(), err)
	}
	for _, server := range in.servers() {
		if strings.Contains(info, "port="+server.Addr()[strings.Index(server.Addr(), ":")+1:]+",") {
			replicas = append(replicas, server)
		}
	}
	return replicas
}

// whole complains unless that many replicas confirm a write at the master.
func whole(ctx context.Context, in set, replicas int) (complaint string) {
	return chaostest.ConfirmAt(ctx, in.master(), name, replicas)
}

// strike is a kind of fault. It returns when the servers run again; they need not work together
// yet.
type strike struct {
	name string
	lost bool // everything is lost: locks may be held twice
	do   func(t *testing.T, in set, with settings)
}

const (
	killed   = "master killed"
	stopped  = "master stopped"
	wiped    = "master wiped"
	byHand   = "replaced by hand"
	oneAway  = "a replica away for 5 s"
	awayFor  = 5 * time.Second
	nextRest = 3 * time.Second // between two faults
)

var strikes = []strike{
	{name: killed, do: func(t *testing.T, in set, with settings) {
		master := in.master()
		master.Kill()
		awaitFailover(t, in, master)
		startAgain(t, in, master, with)
	}},
	{name: stopped, do: func(t *testing.T, in set, _ settings) {
		master := in.master()
		master.Pause()
		defer master.Resume()
		awaitFailover(t, in, master)
	}},
	{name: wiped, lost: true, do: func(_ *testing.T, in set, _ settings) { in.master().RestartEmpty() }},
	{name: byHand, do: func(t *testing.T, in set, with settings) {
		master := in.master()
		in.failOver(t)
		awaitFailover(t, in, master)
		tell(t, in, master, with)
	}},
	{name: oneAway, do: func(t *testing.T, in set, _ settings) {
		replica := replicasOf(t, in, in.master())[0]
		replica.Kill()
		time.Sleep(awayFor)
		replica.Restart()
	}},
}

func awaitFailover(t *testing.T, in set, old *redistest.Server) {
	t.Helper()
	chaostest.Await(t, patience, func() string {
		if !in.failedOver(old) {
			return old.Addr() + " is still master"
		}
		return ""
	})
}

// startAgain starts a server that was master. As its start script would, the test tells it whom to
// follow.
func startAgain(t *testing.T, in set, server *redistest.Server, with settings) {
	t.Helper()
	server.Restart()
	tell(t, in, server, with)
}

// tell has a former master follow the one that has taken its place. Nodes of a cluster do so by
// themselves.
func tell(t *testing.T, in set, former *redistest.Server, with settings) {
	t.Helper()
	if _, sentinel := in.(*sentinels); sentinel && with.told {
		host, port, _ := strings.Cut(in.master().Addr(), ":")
		chaostest.Do(t, former, "REPLICAOF", host, port)
		// else it is a master again after its next start
		chaostest.Do(t, former, "CONFIG", "REWRITE")
	}
}
