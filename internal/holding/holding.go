// Package holding starts a holder of a worker id with the leases of one of our packages. What a
// holder does is in package workerlease/holder, which sets Hold and Start: its exported names show
// no type of this package.
package holding

import (
	"context"
	"log/slog"
	"time"
)

// Leaser grants leases, each a holder.Lease. It is safe for concurrent use, and every call ends
// with its context.
type Leaser[Lease any] interface {
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
	// somebody has to change something first, such as rights: Hold, whose caller sees the error,
	// does not wait for that, and Start does
	Refused bool
	// a grant can be had after that long, or sooner after a release; 0 = not known
	Wait time.Duration
}

var (
	// Hold acquires a lease of a [Leaser] and returns a *holder.Holder, which holds the lease until
	// Release, its loss, or the end of the context. The error is the leaser's, and also the
	// context's cause if that ended the wait. The logger gets the holder's waits. The options are
	// holder.Options.
	Hold func(ctx context.Context, log *slog.Logger, pool string, leaser, options any) (held any, err error)
	// Start returns at once a *holder.Holder that asks for the first grant until it is there, until
	// Release, until the context ends, or until the leaser says that asking again does not help.
	Start func(ctx context.Context, log *slog.Logger, pool string, leaser, options any) (held any)
)
