package redisstore

// Restarts is how a restart or a failover of Redis is judged. It must be the same in all processes
// with one prefix: if one of them waits, the others wait with it.
type Restarts string

const (
	// WaitAfterRestart takes another incarnation of a server for a possible loss: worker-id pools
	// wait until every window that may have been forgotten has ended, counters and segments move
	// past every value that can have been handed out, and locks wait if they are so configured.
	// Nothing in Redis proves that it lost nothing: a server that was started from a copy of the
	// file looks like one that was only restarted.
	WaitAfterRestart Restarts = "wait"
	// TrustRestarts takes existing state for complete, so that a restart and a failover cost
	// nothing. It assumes that a server which starts again, or a replica which takes over, has
	// every write that was confirmed: each server runs with `appendfsync always`, Ack is the number
	// of all replicas that can become master, and none is started from a copy or a backup while
	// processes of the old one live. Missing state, in whole or in part, still is a loss.
	TrustRestarts Restarts = "trust"
)
