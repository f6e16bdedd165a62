package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// Resolver closes an operation in doubt at whatever keeps its effect, and says what had happened:
// DecisionHappened, with the answer that the attempt gave or would have given, or
// DecisionNotBegun. After its answer no attempt with this fence or a smaller one may have an
// effect: one may still be on its way. docs/effects.md has recipes that are exact. An error, or a
// resolution without a decision, says that nothing is known.
type Resolver func(ctx context.Context, operation string, fence int64) (Resolution, error)

// Resolution is what a resolver has found out. DecisionRefused is not a resolver's to decide.
type Resolution = Settlement

// Resolving is the right to find out what became of an operation. One caller has it at a time.
type Resolving struct {
	Lease string    // the secret that proves it, for [Settlement].Lease
	Fence int64     // of the newest attempt: close it and smaller ones
	Until time.Time // end of the lease by the Redis server's clock
	Asked int       // how often somebody has begun to resolve this attempt, this time included
}

// BeginResolving begins to resolve an operation in doubt, by its name, within a lease (100 ms to 5
// min; 0 = 30 s). The attempt in doubt loses its claim. Then call Settle with the lease, or
// EndResolving. Do and DoKey do all of this where the options have a Resolver. The errors:
// ErrAttemptRunning, also while another one asks (RetryAfter is the wait), ErrNotInDoubt,
// ErrUnknownOperation; ErrUnknownOutcome and ErrUnavailable. It needs the operation's principal, or
// the role admin.
func (c *Client) BeginResolving(ctx context.Context, name string, lease time.Duration) (Resolving, error) {
	var begun api.Resolving
	asked := call{
		op: "resolve operation", name: name, method: http.MethodPost, path: "/operation/" + name + "/resolve",
		lease: NewLeaseToken(), body: api.ResolveRequest{LeaseMs: givenMillis(lease)}, into: &begun,
	}
	err := c.onOperation(ctx, asked)
	for try := 1; errors.Is(err, ErrUnknownOutcome) && try < claimTries && rest(ctx, 100*time.Millisecond); try++ {
		err = c.onOperation(ctx, asked) // with the same lease: it is the same question
	}
	if err == nil && (!leaseForm.MatchString(begun.Lease) || begun.Fence <= 0) {
		err = asked.unreadable()
	}
	if err != nil {
		return Resolving{}, err
	}
	return Resolving{begun.Lease, begun.Fence, begun.LeaseUntil.Time, begun.Asked}, nil
}

// EndResolving says that nothing was found out: the next one may ask soon, later the more often it
// was in vain. The errors: as of BeginResolving, and ErrSuperseded if another one resolves it.
func (c *Client) EndResolving(ctx context.Context, name, lease string) error {
	return c.onOperation(ctx, call{
		op: "resolve operation", name: name, method: http.MethodPost, path: "/operation/" + name + "/resolve",
		lease: lease, body: api.ResolveRequest{LeaseMs: new(int64)},
	})
}

const resolveTime = 30 * time.Second // for one question

// resolve asks the resolver about an operation that was found in doubt, and reports whether the
// doubt is over.
func (run *run) resolve(ctx context.Context, found error) bool {
	failure, is := errors.AsType[*Error](found)
	if !is || failure.Operation == "" {
		return false
	}
	begun, err := run.client.BeginResolving(ctx, failure.Operation, resolveTime+5*time.Second)
	if err != nil {
		return errors.Is(err, ErrNotInDoubt) // another one has asked
	}
	limited, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	said, err := run.terms.Resolve(limited, failure.Operation, begun.Fence)
	if err == nil && said.Decision != DecisionHappened && said.Decision != DecisionNotBegun {
		err = errors.New("it says neither completed nor not-begun")
	}
	if err == nil {
		said.Lease = begun.Lease
		err = settle(context.WithoutCancel(ctx), func(ctx context.Context) error {
			return run.client.Settle(ctx, failure.Operation, said)
		})
	}
	if err != nil {
		// else its lease ends
		_ = run.client.EndResolving(context.WithoutCancel(ctx), failure.Operation, begun.Lease)
		run.client.log.Warn("client: a resolver was asked in vain; the operation stays in doubt", "operation", failure.Operation, "error", err)
	}
	return err == nil
}

// claimOrResolve is claim, and again once a resolver has ended the doubt about the operation.
func (run *run) claimOrResolve(ctx context.Context) (Outcome, error) {
	outcome, err := run.claim(ctx)
	if run.terms.Resolve == nil || !errors.Is(err, ErrInDoubt) || !run.resolve(ctx, err) {
		return outcome, err
	}
	run.trusted = time.Now()
	return run.claim(ctx)
}
