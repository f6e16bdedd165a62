package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/scripts"
)

// Resolver closes an operation in doubt at whatever keeps its effect, and says what had happened.
// After its answer no attempt with the operation's fence or a smaller one may have an effect: such
// an attempt may still be on its way. docs/effects.md has recipes that are exact.
//
// An error, or a resolution without a decision, says that nothing is known: it is asked again, at
// first after a second and then after longer, up to a minute. Its context ends after ten seconds.
// It may be called for several operations at once, and again for one that it has closed.
type Resolver func(ctx context.Context, operation Operation) (Resolution, error)

// Resolution is what a resolver has found out: [DecisionHappened] with the answer that the attempt
// gave or would have given, which every repeat gets, or [DecisionNotBegun], upon which the next
// request runs, with a larger fence. [DecisionRefused] is not a resolver's to decide.
type Resolution = Settlement

// Resolving is the right to find out what became of an operation. One caller has it at a time.
type Resolving struct {
	LeaseToken string    // the secret that proves it, for [Settlement].LeaseToken
	Fence      int64     // of the newest attempt: it and smaller ones are to be closed
	Until      time.Time // end of its lease by the Redis server's clock
	Asked      int       // how often somebody has begun to resolve this attempt, this time included
}

// ErrResolving is the ErrAttemptRunning of an operation that another one resolves, or tried to just
// now. redisstore.RetryAfter has the wait.
var ErrResolving = fmt.Errorf("idempotency: another one resolves the operation, or has just tried to (%w)", ErrAttemptRunning)

// errInQuestion is the ErrInProgress of an operation whose attempt has ended, and that somebody
// resolves.
var errInQuestion = fmt.Errorf("%w, or what became of it is being found out", ErrInProgress)

// MaxResolving is how long the lease of a resolver is at most: nobody else settles meanwhile.
const MaxResolving = 5 * time.Minute

// BeginResolving begins to resolve an operation in doubt, by its name, for callers that ask
// whatever keeps the effect themselves; where a [Resolver] is set, this is done for it. The attempt
// in doubt loses its claim: if it still ends, it gets ErrSuperseded. Repeats get ErrInProgress
// until the lease (MinLease to MaxResolving; 0 = 30 s) ends. Then call Settle with the lease token,
// or EndResolving. A lease token of [NewLeaseToken] lets a caller repeat this call; "" = a new one.
// Errors: [ErrResolving], [ErrAttemptRunning], [ErrNotInDoubt], [ErrUnknownOperation].
func (t *Tokens) BeginResolving(ctx context.Context, operation, leaseToken string, lease time.Duration) (Resolving, error) {
	options := ClaimOptions{LeaseToken: leaseToken, Lease: lease}.withDefaults()
	if err := options.check(); err != nil {
		return Resolving{}, err
	}
	if options.Lease > MaxResolving {
		return Resolving{}, fmt.Errorf("idempotency: lease %v: %v to %v", lease, MinLease, MaxResolving)
	}
	begun := Resolving{LeaseToken: cmp.Or(leaseToken, secret.New())}
	reply, err := t.resolving(ctx, operation, begun.LeaseToken, options.Lease)
	if err != nil {
		return Resolving{}, err
	}
	err = reply.Scan(&begun.Fence, &begun.Until, &begun.Asked)
	return begun, err
}

// EndResolving says that nothing was found out. Errors as BeginResolving, and [ErrSuperseded] if
// the operation is another one's to resolve by now.
func (t *Tokens) EndResolving(ctx context.Context, operation, leaseToken string) error {
	_, err := t.resolving(ctx, operation, leaseToken, 0)
	return err
}

func (t *Tokens) resolving(ctx context.Context, operation, owner string, lease time.Duration) (scripts.Reply, error) {
	if !names.Digested.MatchString(operation) {
		return nil, ErrUnknownOperation
	}
	reply, err := onstore.Run(ctx, t.store, scripts.OperationResolve, t.keysOf(operation)[:1], owner, lease.Milliseconds(), t.done)
	if err != nil {
		return nil, fmt.Errorf("resolve operation: %w", err)
	}
	switch reply.Word() {
	case "ok":
		return reply, nil
	case "stale":
		return nil, ErrSuperseded
	case "busy", "running":
		refusal, left := ErrResolving, time.Duration(0)
		if reply.Word() == "running" {
			refusal = ErrAttemptRunning
		}
		err := reply.Scan(&left)
		return nil, errors.Join(running(refusal, left), err)
	case "not-in-doubt":
		return nil, fmt.Errorf("%w: it is %s", ErrNotInDoubt, reply.Values()[0])
	case "unknown":
		return nil, ErrUnknownOperation
	}
	return nil, reply.Unexpected()
}
