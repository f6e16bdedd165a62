package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/coatcheck/coatcheck/redisstore"
)

// maxResult is how many bytes of a result are kept.
const maxResult = 1 << 20

// Result is the result of Do.
type Result struct {
	Value    []byte // what the function returned
	Replayed bool   // the function ran before, and this is what it returned then
	NotKept  bool   // it ran before, and returned more than 1 MiB, which was not kept
}

// Do runs a function once for a key: for the id that its work has already ([Key]), as a message or
// a job has one, or for a token ([IssuedToken]). It claims, extends and completes as Middleware
// does, and as DoKey and Do of package client do over HTTP. If the function returns no error, its
// value is recorded and every later Do gets it. If it returns an error, the operation may have
// happened: it is in doubt, and under PolicyTakeover the next Do may run at once; an attempt that
// called Release is given back instead. A panic leaves the operation in doubt and is passed on.
//
// The function's context ends with ctx, with the cause ErrSuperseded when the claim is lost, and
// with ErrUnknownToken when Redis has lost the token. Do's error is one of Claim's, and the
// function did not run; or a [*WorkError] with the function's own, and also redisstore.ErrLost if
// the claim was lost meanwhile; or ErrSuperseded if another attempt took over before the value was
// recorded. Without a fingerprint in the options, the same key is taken for the same operation.
func (t *Tokens) Do(ctx context.Context, key Key, options ClaimOptions,
	work func(context.Context, *Attempt) ([]byte, error)) (Result, error) {
	key = key.named()
	options.Fingerprint = cmp.Or(options.Fingerprint, "do")
	run, outcome, err := t.beginOrResolve(ctx, key, options)
	if err != nil {
		return Result{}, err
	}
	if !outcome.Granted {
		return Result{Value: outcome.Answer.Body, Replayed: true, NotKept: outcome.Answer.NotKept}, nil
	}
	if err := ctx.Err(); err != nil { // at the same moment; it would be in doubt
		run.release()
		return Result{}, fmt.Errorf("attempt %d was not begun: %w: %w", run.attempt.Number, redisstore.ErrRefused, err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx = run.start(ctx, cancel)
	var value []byte
	run.call(func() { value, err = work(ctx, run.attempt) })
	if err != nil {
		run.giveUp()
		return Result{}, withLoss(ctx, &WorkError{Operation: run.attempt.Operation, Err: err})
	}
	if err := run.settle(resultAnswer(value)); err != nil {
		return Result{}, err
	}
	return Result{Value: value}, nil
}

// beginOrResolve is begin, for Do. If the operation is in doubt it waits for its resolver.
func (t *Tokens) beginOrResolve(ctx context.Context, key Key, options ClaimOptions) (*run, Outcome, error) {
	if options.Resolve == nil {
		return t.begin(ctx, key, options)
	}
	t.asker.answersFor(cmp.Or(options.Route, key.Scope), options.Resolve)
	run, outcome, err := t.beginOrAsk(ctx, key, options)
	if !errors.Is(err, ErrInDoubt) && !errors.Is(err, errInQuestion) {
		return run, outcome, err
	}
	return t.beginOrWait(ctx, key, options, resolveTime)
}

// WorkError is Do's error when the function that it ran has returned an error. It does not wrap
// that error, which may be another call's refusal: that says nothing of this operation, which may
// have happened.
type WorkError struct {
	Operation string // its name, as [Attempt.Operation]
	Err       error  // the function's own
}

// Error reports what the function has returned.
func (e *WorkError) Error() string { return "the function that ran returned: " + e.Err.Error() }

// withLoss adds that the claim was lost while the function ran. That Redis has lost the token is a
// refusal of any other call, but not of this one.
func withLoss(ctx context.Context, err error) error {
	switch lost := context.Cause(ctx); {
	case errors.Is(lost, redisstore.ErrLost):
		return fmt.Errorf("%w; %w", err, lost)
	case errors.Is(lost, ErrUnknownToken):
		return fmt.Errorf("%w; %w: %s", err, redisstore.ErrLost, lost.Error())
	}
	return err
}

// giveUp ends an attempt that failed: given back if it never began, else in doubt.
func (run *run) giveUp() {
	if run.attempt.notBegun.Load() && !run.attempt.inDoubt.Load() {
		run.release()
		return
	}
	run.abandon()
}

// resultAnswer is a value as an answer, so that Do and Middleware give a token the same one. It has
// bytes of its own: it may be recorded later, when Do's caller has changed the value's.
func resultAnswer(value []byte) Answer {
	if len(value) > maxResult {
		return Answer{Status: http.StatusOK, NotKept: true}
	}
	return Answer{Status: http.StatusOK, Body: bytes.Clone(value)}
}
