package doctor

import (
	"time"

	"github.com/coatcheck/coatcheck/redisstore"
)

// Inspection is what a Redis says of itself, and what was measured of it: facts, without a
// judgement. It holds no password.
type Inspection struct {
	Mode     redisstore.Mode
	Address  string // the URL's hosts, without user or password
	LoggedIn bool   // the URL has a password
	TLS      bool
	Database int

	Servers   []Inspected // masters and replicas, as far as they are known
	Sentinels []InspectedSentinel
	Cluster   *InspectedCluster // nil = not a cluster, or no node could be asked
}

// Inspected is one server of a Redis.
type Inspected struct {
	Addr     string
	Loopback bool   // it is on this host
	Master   bool   // it says that it is one
	Away     string // why it could not be asked; then only Addr and Loopback are known

	Info map[string]string // INFO, by its names

	Config       map[string]string // of the settings that are looked at, those that it told
	ConfigUnseen string            // why there is no Config

	Missing []string // commands that a store needs and the server does not know; upper case
	// those that our user may not run; upper case, with their subcommand, such as CLUSTER|SLOTS
	Denied  []string
	Untried string // why neither is known
	// what a script that does no more than TIME was answered, if that was an error
	ScriptFails string
	Incarnation string // master_replid, as a script sees it
	// why a script cannot tell one incarnation of this server from another: what its INFO was
	// answered, or that there is no master_replid; "" = it can, or none ran
	NoIncarnation string
	// of masters: records of a newer format, their key without the prefix, and their word after a
	// blank, such as "counters:{marker} @2:1.1.0"; of those that have one key in every store
	Newer []string

	Clock  Clock
	Ping   Latency
	Script Latency // of a script that only reads TIME

	Replicas []InspectedReplica // as the master lists them
	Reach    *Reach             // of masters; nil = it was not to be written
}

// Clock is how a server's clock stands to this host's.
type Clock struct {
	Offset time.Duration // the server's time less this host's, at the middle of a round trip
	Within time.Duration // the offset is off by this at most: half of the shortest round trip
	Err    string        // why it is not known
}

// Latency is how long round trips took.
type Latency struct {
	N             int
	P50, P99, Max time.Duration
}

// InspectedReplica is a replica as its master sees it.
type InspectedReplica struct {
	Addr  string
	State string // online, or how far it has come
	Lag   time.Duration
	// Behind is how many bytes of the master's history are not confirmed; under load rarely none.
	Behind int64
}

// Reach is what became of one small write, and of a WAIT after it.
type Reach struct {
	Asked int // for so many replicas
	Got   int
	Took  time.Duration // the write and the WAIT
	Err   string        // what the write was refused with
	// what the WAIT was refused with; then Got is not known
	WaitErr string
}

// InspectedSentinel is one sentinel, and what it says of the master that the URL names.
type InspectedSentinel struct {
	Addr string
	Away string // why it could not be asked, or that it does not know the master

	// Denied are the commands that our user may not run there, such as SENTINEL|MASTER. If there
	// are any, nothing else but Master is known.
	Denied []string

	Master    string // address
	Down      bool   // it holds the master to be down
	Quorum    int    // sentinels that have to agree that it is
	DownAfter time.Duration
	Replicas  []string // addresses
	NoQuorum  string   // why no failover would be possible now
}

// InspectedCluster is a cluster as its nodes see it.
type InspectedCluster struct {
	Nodes     []ClusterNode
	Uncovered int               // slots that no master serves
	Moving    []int             // slots that are on their way to another node
	Failing   []string          // nodes that others hold to be down, or may be
	States    map[string]string // what each node that could be asked says of the whole: ok or fail
}

// ClusterNode is one node of a cluster, as the first node that could be asked lists it.
type ClusterNode struct {
	Addr   string
	Master bool
	Flags  []string
	Slots  [][2]int // first and last of each range that it serves
}
