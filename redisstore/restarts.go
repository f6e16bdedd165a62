package redisstore

import "github.com/coatcheck/coatcheck/internal/pipeline"

// Restarts is how another incarnation of Redis is judged: a restart, a failover, a slot of a
// cluster that has moved. It must be the same in all processes with one prefix.
type Restarts string

const (
	// RestartsAuto believes what Redis itself proves, and takes everything else for a possible
	// loss, after which worker-id pools wait until every window that may have been forgotten has
	// ended, counters and segments move past every value that can have been handed out, and locks
	// wait if they are so configured. Nothing is lost, and so nothing is paid, in these cases
	// (scripts/lib/incarnation.lua has the facts):
	//
	//   - A promotion in a Sentinel set, with an Ack of [AckAll]. In a cluster it counts as a loss,
	//     and so does a slot that was moved.
	//   - A server that only renames its history, as Redis does when its first replica attaches,
	//     for a backup too, and some time after the last one has left.
	//   - A restart of one server without replicas, where it has `appendonly yes`, `appendfsync
	//     always` and `no-appendfsync-on-rewrite no`, and had them while it was in use.
	//
	// It assumes that all processes with one prefix use one Restarts; that no server is started
	// from a copy or a backup unless `coatcheck store restored` was run; and that those settings of
	// a server are not changed for less than ten seconds. docs/guarantees.md has all assumptions.
	RestartsAuto Restarts = "auto"
	// RestartsWait is RestartsAuto, but no restart is believed.
	RestartsWait Restarts = "wait"
	// RestartsTrust takes existing state for complete, so that a restart and a failover cost
	// nothing, and asks the server nothing: it also works where INFO is forbidden or shows no
	// master_replid. It assumes that a server which starts again, or a replica which takes over,
	// has every write that was confirmed. Missing state, in whole or in part, still is a loss.
	RestartsTrust Restarts = "trust"
)

// AckAll as [Config].Ack waits for every replica that can become master: those that Sentinel or the
// cluster lists, unreachable ones included, those that are attached, and those that have confirmed
// before. [Store.ReplicasGone] ends that for servers that are gone for good. At one server nobody
// lists replicas: there it is refused while a replica is attached.
const AckAll = pipeline.AckAll
