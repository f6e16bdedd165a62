package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/secret"
)

// run is one start of a handler or function that a claim allowed.
type run struct {
	tokens  *Tokens
	key     Key
	owner   string
	options ClaimOptions
	claimed time.Time // before the claim was sent
	attempt *Attempt
	beat    *keepalive.Heartbeat
	// of the request, without its end: the token's outcome is recorded whether or not the client
	// waits
	detached context.Context
	ends     *statuses // how it ends by its answer; nil = every answer is recorded
	ended    bool      // the answer is recorded, or is being recorded
}

// begin claims a token for a new owner, if that is admitted. If the outcome is a grant the caller
// makes the run; otherwise there is none, and the outcome has the recorded answer. A claim of
// unknown outcome is given back in the background, since nothing was started for it. One under
// PolicyTakeover whose grant is as old as its lease is given back too: another attempt may run by
// now.
func (t *Tokens) begin(ctx context.Context, key Key, options ClaimOptions) (*run, Outcome, error) {
	if err := t.admit(); err != nil {
		return nil, Outcome{}, fmt.Errorf("%w: %w", errNotAdmitted, err)
	}
	owner, claimed := secret.New(), time.Now()
	outcome, err := t.claim(ctx, key, options, owner)
	if err != nil || !outcome.Granted {
		return nil, outcome, t.notStarted(ctx, key, owner, options.withDefaults(), err)
	}
	granted := &run{
		tokens: t, key: key, owner: owner, options: options.withDefaults(), claimed: claimed, detached: context.WithoutCancel(ctx),
		attempt: &Attempt{Fence: outcome.Grant.Fence, Number: outcome.Grant.Attempt, Operation: key.record},
	}
	if granted.options.Policy == PolicyTakeover && keepalive.Age(claimed) >= granted.options.Lease {
		granted.release()
		return nil, Outcome{}, errLate
	}
	return granted, outcome, nil
}

// start begins the heartbeat, and returns the context with the attempt. cancel ends that context
// when the claim is lost.
func (run *run) start(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
	run.beat = run.heartbeat(cancel)
	return context.WithValue(ctx, contextKey{}, run.attempt)
}

// call runs the work and ends the heartbeat. If the work panics, the token is in doubt from now on:
// its effect is unknown. An answer that has been recorded before, since it grew over the limit,
// stays.
func (run *run) call(work func()) {
	panicked := true
	defer func() {
		run.beat.Stop()
		if panicked && !run.ended {
			run.abandon()
		}
	}()
	work()
	panicked = false
}

func (run *run) abandon() {
	if err := run.tokens.Abandon(run.detached, run.key, run.owner); err != nil {
		run.tokens.log.WarnContext(run.detached,
			"idempotency: an attempt ended without an answer; its token is in doubt when its lease has lapsed", "error", err)
		return
	}
	run.tokens.asker.ask(cmp.Or(run.options.Route, run.key.Scope), run.options.Resolve, run.key.record)
}

// settle ends the attempt. The error is one that the client must get instead of the answer.
func (run *run) settle(answer Answer) error {
	switch run.ending(answer.Status) {
	case doubted:
		run.abandon()
	case freed:
		run.release()
	case recorded:
		return run.record(answer)
	}
	return nil
}

// ending is how the attempt ends: as the handler has stated, else as the route says of the status.
func (run *run) ending(status int) ending {
	switch {
	case run.attempt.inDoubt.Load():
		return doubted
	case run.attempt.notBegun.Load():
		return freed
	case run.ends == nil:
		return recorded
	}
	return run.ends.of(status)
}

// release gives the claim back: the work provably never began.
func (run *run) release() {
	_, err := run.tokens.release(run.detached, run.key, run.owner)
	if err != nil { // any answer is final: the claim stood
		run.tokens.log.WarnContext(run.detached, "idempotency: a claim could not be given back at once", "error", err)
		run.tokens.giveBack(run.key, run.owner, run.options)
		return
	}
	run.tokens.confirmRelease(run.key, run.owner, run.options)
}

// record stores the answer before it is sent. If another attempt has the claim, this answer must
// not be sent. If the store is away, or the record is gone, the answer is valid all the same and is
// sent; recording is retried in the background.
func (run *run) record(answer Answer) error {
	run.ended = true
	run.ends.tell(run.detached, run.tokens.log, run.options.Route, answer)
	err := run.tokens.Complete(run.detached, run.key, run.owner, answer)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrSuperseded):
		return err
	case errors.Is(err, ErrUnknownToken):
		run.tokens.log.WarnContext(run.detached, "idempotency: the record of a running attempt is gone; its answer is sent and not kept")
		return nil
	}
	run.tokens.log.WarnContext(run.detached, "idempotency: an answer is not recorded yet", "error", err)
	run.tokens.completeLater(run.detached, run.key, run.owner, answer, run.attempt)
	return nil
}
