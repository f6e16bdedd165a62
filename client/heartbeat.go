package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/coatcheck/coatcheck/internal/keepalive"
)

// errLapsed ends a function under PolicyTakeover by this process's own clock.
var errLapsed = fmt.Errorf("%w, or may have: the lease can have ended", ErrSuperseded)

// beat starts the heartbeat, and returns a function that ends it and waits until no extension is
// under way. One that was sent already does no harm: it changes a claim only while that stands. The
// heartbeat goes on when the function's context ends, until the function itself has: until then the
// claim is in use. Under PolicyTakeover the function's context ends when the lease can have ended,
// whether or not the service answers.
func (run *run) beat(ctx context.Context, lose context.CancelCauseFunc) (stop func()) {
	ctx, quit := context.WithCancel(context.WithoutCancel(ctx))
	claim := keepalive.Claim{
		Lease:  run.terms.Lease,
		Extend: func() error { return run.extend(ctx) },
		Lost:   func(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrUnknownToken) },
		Failed: func(err error) {
			if ctx.Err() == nil {
				run.client.log.Warn("client: heartbeat failed, trying on", "error", err)
			}
		},
		End: lose,
	}
	if run.terms.Policy == PolicyTakeover {
		claim.Late = errLapsed
	}
	heartbeat := keepalive.Beat(run.trusted, claim)
	return func() {
		quit()
		heartbeat.Stop()
	}
}

// extend sends one heartbeat. One that hangs makes room for the next.
func (run *run) extend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, run.terms.Lease/3)
	defer cancel()
	_, err := run.client.extend(ctx, run.on, run.lease, run.terms.Lease)
	return err
}
