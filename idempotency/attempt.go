package idempotency

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Attempt is the claim as seen by a guarded handler. It is safe for concurrent use.
type Attempt struct {
	// larger than that of every earlier attempt of this token; below 2^53. Send it to a resource
	// that must refuse an older attempt
	Fence int64
	// counts from 1; more only under PolicyTakeover, or for an issued token whose attempt never
	// began
	Number int
	// 32 characters that name the operation: the same for all attempts of one token or key,
	// different for any other. Fit for a unique column
	Operation string
	notBegun  atomic.Bool
	inDoubt   atomic.Bool
}

// Release states that the operation provably had no effect, such as a request that failed
// validation: the answer is sent but not recorded, and the same token may be used again, with
// another payload too. A handler that has had any effect outside must not call it.
func (a *Attempt) Release() { a.notBegun.Store(true) }

// Abandon states that the operation may or may not have had its effect, such as a call to another
// service that timed out: the answer is sent but not recorded, and the token is in doubt at once.
// Under PolicyHold later requests get "outcome unknown"; under PolicyTakeover the next one may run.
// It wins over Release.
func (a *Attempt) Abandon() { a.inDoubt.Store(true) }

func (a *Attempt) doubt(is bool) {
	if is {
		a.Abandon()
	}
}

type contextKey struct{}

// FromContext returns the attempt of a guarded handler; ok is false outside of one.
func FromContext(ctx context.Context) (attempt *Attempt, ok bool) {
	attempt, ok = ctx.Value(contextKey{}).(*Attempt)
	return attempt, ok
}

// heartbeat starts the heartbeat of the claim. Under PolicyTakeover the handler's context ends when
// the lease can have ended, even if Redis is silent: from then on another attempt may run.
func (run *run) heartbeat(cancel context.CancelCauseFunc) *keepalive.Heartbeat {
	claim := keepalive.Claim{
		Lease: run.options.Lease,
		Extend: func() error {
			_, err := run.tokens.Extend(run.detached, run.key, run.owner, run.options.Lease)
			return err
		},
		Lost: func(err error) bool { return errors.Is(err, redisstore.ErrLost) || errors.Is(err, ErrUnknownToken) },
		Failed: func(err error) {
			run.tokens.log.WarnContext(run.detached, "idempotency: heartbeat failed, trying on", "error", err)
		},
		End: cancel,
	}
	if run.options.Policy == PolicyTakeover {
		claim.Late = ErrSuperseded
	}
	return keepalive.Beat(run.claimed, claim)
}
