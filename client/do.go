package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
)

// Attempt is the claim as seen by a function that Do runs. It is safe for concurrent use.
type Attempt struct {
	// larger than that of every earlier attempt of this token; below 2^53. Send it to a resource
	// that must refuse an older attempt
	Fence  int64
	Number int // counts from 1; more than 1 only under PolicyTakeover or after Release
	// of DoKey: the operation's name, by which operators settle it
	Operation string
	notBegun  atomic.Bool
}

// Release states that the operation provably had no effect, such as a request that failed
// validation: the answer is not recorded, and the same token may be used again, with another
// fingerprint too. A function that has had any effect outside must not call it.
func (a *Attempt) Release() { a.notBegun.Store(true) }

// maxResult is how many bytes of a result are kept, as package idempotency keeps them. The service
// may take less.
const maxResult = 1 << 20

// Result is the result of Do.
type Result struct {
	Value    []byte // what the function returned
	Replayed bool   // the function ran before, and this is what it returned then
	// it ran before, and returned more than 1 MiB, or than the service takes, which was not kept
	NotKept bool
}

// workFunc is a function that Do runs.
type workFunc = func(context.Context, *Attempt) ([]byte, error)

// Do runs a function under a token: claim, heartbeat every third of the lease, complete. If the
// function returns no error, its value is recorded before Do returns, as the body of an answer with
// status 200. Every later Do gets it, also the Do of package idempotency. If Complete has recorded
// the answer, Do returns its body.
//
// If the function returns an error, the operation may have happened: nothing is given back, the
// lease lapses, and then the token is in doubt, under PolicyTakeover free for the next Do. An
// attempt that called Release is given back at once instead. A panic is passed on, and leaves the
// token to its lease as an error does.
//
// The function's context ends with ctx, and with a cause that is ErrSuperseded or ErrUnknownToken
// when the claim is lost. Under PolicyTakeover it also ends by this process's own clock as soon as
// the lease can have ended without a confirmed heartbeat: from then on another attempt may run.
//
// The error is one of Claim's (the function did not run), or a [*WorkError] with the function's
// own, and also ErrLost if the claim was lost meanwhile, or ErrSuperseded (another attempt took
// over before the value was recorded: do not use the value), or ErrNotRecorded. With the last the
// result holds the value: it is valid, but repeats may get "in progress", later "in doubt", and
// under PolicyTakeover may run again. Recording and giving back are tried several times, for up to
// half a minute, also after ctx; the answer to a claim that is under way when ctx ends is awaited
// for a second, and a claim whose outcome stays unknown is given back if the service takes that
// within a second. Without a fingerprint in the options, the same token is taken for the same
// operation. Do leaves no goroutine running.
func (c *Client) Do(
	ctx context.Context, token string, terms ClaimOptions, work func(context.Context, *Attempt) ([]byte, error),
) (Result, error) {
	return c.do(ctx, subject{token: token}, terms, work)
}

func (c *Client) do(ctx context.Context, on subject, terms ClaimOptions, work workFunc) (Result, error) {
	terms.Fingerprint = cmp.Or(terms.Fingerprint, "do")
	terms = terms.withDefaults()
	if terms.Lease < time.Millisecond {
		return Result{}, call{op: "claim " + on.kind()}.invalid("a lease is 100 ms to a day")
	}
	run := &run{client: c, on: on, terms: terms, trusted: time.Now()}
	outcome, err := run.claimOrResolve(ctx)
	if err != nil {
		return Result{}, err
	}
	if !outcome.Granted {
		return Result{Value: outcome.Answer.Body, Replayed: true, NotKept: outcome.Answer.NotKept}, nil
	}
	run.lease, run.on.name = outcome.Grant.Lease, outcome.Operation
	run.attempt = &Attempt{Fence: outcome.Grant.Fence, Number: outcome.Grant.Attempt, Operation: outcome.Operation}
	return run.do(ctx, work)
}

// run is one start of a function that a claim allowed.
type run struct {
	client  *Client
	on      subject
	lease   string
	terms   ClaimOptions
	attempt *Attempt
	trusted time.Time // before the claim was sent
}

// claimGrace is how long Do waits on for the answer to a claim when its context has ended, and how
// long it tries to give back a claim whose outcome is not known.
const claimGrace = time.Second

// claim claims the token. A caller that goes away meanwhile must not leave a false doubt.
func (run *run) claim(ctx context.Context) (Outcome, error) {
	if ctx.Err() != nil {
		return run.client.claim(ctx, run.on, run.terms) // which sends nothing
	}
	late, cancel := keepalive.Linger(ctx, claimGrace)
	defer cancel()
	run.terms.LeaseToken = NewLeaseToken()
	outcome, err := run.client.claim(late, run.on, run.terms)
	if errors.Is(err, ErrUnknownOutcome) {
		run.lease = run.terms.LeaseToken
		soon, enough := context.WithTimeout(context.WithoutCancel(ctx), claimGrace)
		defer enough()
		if run.knows(soon) {
			run.release(soon)
		}
	}
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	return outcome, err
}

// knows reports whether the claim can be given back. That of an own key needs the operation's name,
// which the answer to the same claim, sent again, tells.
func (run *run) knows(ctx context.Context) bool {
	if run.on.own == nil {
		return true
	}
	outcome, err := run.client.claim(ctx, run.on, run.terms)
	run.on.name = outcome.Operation
	return err == nil && outcome.Granted
}

func (run *run) do(ctx context.Context, work workFunc) (Result, error) {
	after := context.WithoutCancel(ctx)
	if err := run.tooLate(ctx); err != nil {
		run.release(after)
		return Result{}, fmt.Errorf("attempt %d was not begun: %w", run.attempt.Number, err)
	}
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	value, err := run.call(ctx, lose, work)
	if run.attempt.notBegun.Load() {
		run.release(after)
	}
	switch {
	case err != nil:
		return Result{}, withLoss(ctx, &WorkError{Operation: run.attempt.Operation, Err: err})
	case run.attempt.notBegun.Load():
		return Result{Value: value}, nil
	}
	err = run.record(after, value)
	switch {
	case errors.Is(err, ErrSuperseded):
		return Result{}, err
	case err != nil:
		err = fmt.Errorf("%w: %s", ErrNotRecorded, err.Error())
	}
	return Result{Value: value}, err
}

// tooLate is the reason why the function must not begin, although the claim was granted.
func (run *run) tooLate(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if run.terms.Policy == PolicyTakeover && keepalive.Age(run.trusted) >= run.terms.Lease {
		return errLapsed
	}
	return nil
}

// call runs the work between the start and the end of the heartbeat, whichever way the work ends.
func (run *run) call(ctx context.Context, lose context.CancelCauseFunc, work workFunc) ([]byte, error) {
	defer run.beat(ctx, lose)()
	return work(ctx, run.attempt)
}

// withLoss adds that the claim was lost while the function ran. That the service does not know the
// token any more is a refusal of any other call, but not of this one.
func withLoss(ctx context.Context, err error) error {
	switch lost := context.Cause(ctx); {
	case errors.Is(lost, ErrLost):
		return fmt.Errorf("%w; %w", err, lost)
	case errors.Is(lost, ErrUnknownToken):
		return fmt.Errorf("%w; %w: %s", err, ErrLost, lost.Error())
	}
	return err
}

const (
	settleTries = 8                // to record an answer or to give a claim back
	settleLimit = 30 * time.Second // for all of them together
)

// record stores the value as an answer, or that there was one if it is too large: no token stays in
// doubt for that.
func (run *run) record(ctx context.Context, value []byte) error {
	complete := func(answer Answer) error {
		return settle(ctx, func(ctx context.Context) error { return run.client.complete(ctx, run.on, run.lease, answer) })
	}
	if len(value) <= maxResult {
		if err := complete(Answer{Body: value}); !errors.Is(err, ErrTooLarge) {
			return err
		}
	}
	return complete(Answer{NotKept: true})
}

// release gives the claim back: the work provably never began. The claim may belong to no attempt,
// or never have come about; then there is nothing to give back.
func (run *run) release(ctx context.Context) {
	err := settle(ctx, func(ctx context.Context) error { return run.client.giveBack(ctx, run.on, run.lease) })
	if err != nil && !errors.Is(err, ErrSuperseded) {
		run.client.log.Warn("client: a claim could not be given back; its token is in doubt when its lease has lapsed", "error", err)
	}
}

// settle repeats a harmless call until its outcome is known, or it was tried often and long enough.
func settle(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	wait := 100 * time.Millisecond
	for try := 1; ; try++ {
		err := call(ctx)
		if try == settleTries || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) {
			return err
		}
		if !rest(ctx, wait) {
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}
