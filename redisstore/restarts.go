package redisstore

import "github.com/coatcheck/coatcheck/internal/pipeline"

// Restarts is how another incarnation of Redis is judged: a restart, a failover, a slot of a
// cluster that has moved. It must be the same in all processes with one prefix.
type Restarts string

const (
	// AutoRestarts believes what Redis itself proves, and takes everything else for a possible
	// loss, after which worker-id pools wait until every window that may have been forgotten has
	// ended, counters and segments move past every value that can have been handed out, and locks
	// wait if they are so configured. Nothing is lost, and so nothing is paid, in these cases
	// (scripts/lib/incarnation.lua has the facts):
	//
	//   - A promotion, where every server that can become master has each confirmed write: Ack is
	//     [AckAll], or at least the number of replicas that Sentinel or the cluster lists.
	//   - A server that only renames its history, as Redis does when its first replica attaches,
	//     for a backup too, and some time after the last one has left.
	//   - A slot of a cluster that was moved, while the node that it came from still lives under
	//     the incarnation that is noted.
	//   - A restart, where the server has `appendonly yes`, `appendfsync always` and
	//     `no-appendfsync-on-rewrite no`, had them while it was in use, and replicas are covered as
	//     above, or none was attached.
	//
	// It assumes that all processes with one prefix use one Ack; that no server is started from a
	// copy or a backup unless `coatcheck store restored` was run; and that those settings of a
	// server are not changed for less than ten seconds.
	AutoRestarts Restarts = "auto"
	// WaitRestarts is AutoRestarts, but no restart is believed.
	WaitRestarts Restarts = "wait"
	// TrustRestarts takes existing state for complete, so that a restart and a failover cost
	// nothing, and asks the server nothing: it also works where INFO is forbidden or shows no
	// master_replid. It assumes that a server which starts again, or a replica which takes over,
	// has every write that was confirmed. Missing state, in whole or in part, still is a loss.
	TrustRestarts Restarts = "trust"
)

// AckAll as [Config].Ack waits for every replica that can become master: those that Sentinel or the
// cluster lists, away ones included; on one server, and with a client of [New] for one, the most
// that this process has seen attached to it. A replica that joins counts before its first
// confirmation does: a call that finds it is an unknown outcome, and later ones wait for it too.
const AckAll = pipeline.AckAll
