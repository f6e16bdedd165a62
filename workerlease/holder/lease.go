package holder

import "time"

// Lease is a granted worker id. It is a value: the caller that has its Token holds the lease.
type Lease struct {
	Pool       string
	WorkerID   int
	Datacenter int    // of the pool; 0 where its layout has none
	Token      string // the secret that proves the lease
	Fence      int64  // larger than that of every grant of the pool before; below 2^53
	Identity   string // as the holder named itself
	// the window, by the Redis server's clock: timestamps belong in [NotBefore, NotAfter)
	NotBefore time.Time
	NotAfter  time.Time
	TTL       time.Duration // of the pool
	Layout    string        // of the pool's ids, as package snowflake writes it
	Epoch     time.Time     // time origin of the pool's ids
	Now       time.Time     // the Redis server's time at the grant or at the last renewal
}
