package holder

import (
	"context"
	"time"
)

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

// Leaser grants leases. It is safe for concurrent use, and every call ends with its context.
type Leaser interface {
	// Acquire leases a worker id. The same nonce gets the same grant, if the protocol carries one.
	Acquire(ctx context.Context, nonce string) (Lease, error)
	// Renew asks for one more TTL, and returns the lease with its new NotAfter and Now.
	Renew(ctx context.Context, lease Lease) (Lease, error)
	// Release gives a lease back. usedUntil is the end of the last timestamp that was used; the
	// zero time if that is not known.
	Release(ctx context.Context, lease Lease, usedUntil time.Time) error
	// Judge returns the meaning of an error for a holder.
	Judge(err error) Verdict
}

// Verdict is the meaning of an error for a holder.
type Verdict struct {
	Lost  bool // the lease is gone
	Final bool // asking again does not help, such as a layout that the pool does not have
	// a grant can be had after that long, or sooner after a release; 0 = not known
	Wait time.Duration
}
