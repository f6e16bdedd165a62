package idempotency

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/class"
	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/redisstore"
)

// The refusals of a request with a token. Each is of one class of package redisstore; redisstore's
// own errors come through as well. redisstore.RetryAfter returns the remaining lease of the attempt
// after ErrInProgress and ErrAttemptRunning.
var (
	ErrKeyMissing   = policyRefusal("idempotency: the request has no idempotency header")
	ErrKeyMalformed = policyRefusal("idempotency: malformed idempotency header")
	ErrBodyTooLarge = fault.Refusal("idempotency: the body is larger than the route takes")
	ErrBodyCut      = fault.Refusal("idempotency: the body did not arrive whole")
	ErrInProgress   = policyRefusal("idempotency: the first attempt is still running")
	ErrInDoubt      = policyRefusal("idempotency: the first attempt ended without an answer")
	ErrMismatch     = policyRefusal("idempotency: the token or key was used for another request")
	// ErrConditional refuses a repeat without the Range or the condition of the first request,
	// whose recorded answer is 206 or 304.
	ErrConditional  = policyRefusal("idempotency: the recorded answer is to a request with a Range or a condition")
	ErrUnknownToken = fault.Refusal("idempotency: unknown token")
	// ErrUnknownOperation is ErrUnknownToken of an operation that its name or its own key says.
	ErrUnknownOperation = class.Of(ErrUnknownToken, "idempotency: unknown operation")
	// ErrUnauthorized refuses a request whose caller is not known, as package jwtprincipal does.
	ErrUnauthorized = fault.Refusal("idempotency: the caller is not known")
	// ErrNoKeys refuses a request while what its caller shows cannot be verified.
	ErrNoKeys = fault.Refusal("idempotency: the caller cannot be verified now")
	// ErrAttemptRunning refuses to settle an operation whose attempt may still run.
	ErrAttemptRunning = fault.Refusal("idempotency: an attempt may still be running")
	// ErrNotInDoubt refuses to settle an operation that is not in doubt.
	ErrNotInDoubt = fault.Refusal("idempotency: the operation is not in doubt")
	// ErrGuardedTwice refuses a request that a guard around this one has claimed, for the same
	// operation: it would wait for itself.
	ErrGuardedTwice = fault.Refusal("idempotency: the request is guarded twice, by this guard and by one around it " +
		"or a gateway before it, with the same store, route and key: take one of them away, or give the routes different names. " +
		"The handler did not run")
	ErrSuperseded = fault.Loss("idempotency: another attempt has the claim")
	// errNotAdmitted is the refusal of Config.Admit, beside its own error.
	errNotAdmitted = fault.Refusal("idempotency: nothing is begun now")
)

// errLate is the refusal of a claim that was granted too late, and given back.
var errLate = fmt.Errorf("claim token: %w: it was granted when its lease could have ended", redisstore.ErrUnavailable)

// errCutShort is the answer in place of one that a client could not read to its end.
var errCutShort = fmt.Errorf("%w: the handler wrote less than the Content-Length that it announced", redisstore.ErrUnknownOutcome)

// errRecordLost is the answer of a handler that has stopped without one, since its claim is gone.
var errRecordLost = fmt.Errorf("%w: Redis has lost the claim of the attempt, and its handler has answered nothing",
	redisstore.ErrUnknownOutcome)

// errPolicy marks the refusals that the route's policy explains.
var errPolicy = fault.Refusal("idempotency: see the route's policy")

// policyRefusal is a refusal that the route's policy explains.
func policyRefusal(text string) error { return &policyError{text} }

type policyError struct{ text string }

func (e *policyError) Error() string { return e.text }
func (e *policyError) Unwrap() error { return errPolicy }

// Unauthorized is ErrUnauthorized for a header, and why: for functions that tell callers apart.
func Unauthorized(header, why string) error {
	return &fieldError{ErrUnauthorized, header, strings.TrimPrefix(ErrUnauthorized.Error(), "idempotency: ") + ": " + why}
}

// running is ErrInProgress or ErrAttemptRunning with the remaining lease of the attempt.
func running(err error, left time.Duration) error {
	return &fault.WaitError{Err: err, Wait: left, Text: "; its lease has {wait} left"}
}

// InDoubtError is [ErrInDoubt] with what is known of the operation.
type InDoubtError struct {
	Operation string    // its name, as [Attempt.Operation]
	Since     time.Time // when the attempt's lease ended, by the Redis server's clock
	Refused   bool      // an operator has checked it, and closed it without an answer
}

// Error reports since when, and what has been decided.
func (e *InDoubtError) Error() string {
	text := fmt.Sprintf("%v; operation %s has been in doubt since %s", ErrInDoubt, e.Operation, e.Since.Format(time.RFC3339))
	if e.Refused {
		text += ", and an operator has closed it"
	}
	return text
}

// Unwrap returns ErrInDoubt.
func (e *InDoubtError) Unwrap() error { return ErrInDoubt }

// codes maps errors to problems, the more particular before the class it belongs to.
var codes = []struct {
	err  error
	code api.Code
}{
	{ErrKeyMissing, api.KeyMissing},
	{ErrKeyMalformed, api.KeyMalformed},
	{ErrBodyTooLarge, api.PayloadTooLarge},
	{ErrBodyCut, api.InvalidRequest},
	{ErrCursor, api.InvalidRequest},
	{ErrInProgress, api.InProgress},
	{ErrInDoubt, api.IdempotencyUnknown},
	{ErrAttemptRunning, api.AttemptRunning},
	{ErrNotInDoubt, api.NotInDoubt},
	{ErrMismatch, api.PayloadMismatch},
	{ErrConditional, api.AnswerConditional},
	{ErrUnknownOperation, api.OperationUnknown},
	{ErrUnknownToken, api.TokenUnknown},
	{ErrUnauthorized, api.Unauthorized},
	{ErrNoKeys, api.StoreUnavailable},
	{ErrSuperseded, api.Superseded},
	{ErrGuardedTwice, api.InternalError},
	{errNotAdmitted, api.StoreUnavailable},
	{redisstore.ErrUnknownOutcome, api.OutcomeUnknown},
	{redisstore.ErrUnavailable, api.StoreUnavailable},
	{redisstore.ErrUnsuitable, api.StoreUnsuitable},
	{redisstore.ErrNewer, api.StoreNewer},
	{redisstore.ErrWrongType, api.WrongType},
}

// ProblemDetails is a problem of RFC 9457 as the middleware writes it. A service that writes its
// own refusals with it answers in the same form.
type ProblemDetails = api.Problem

// ProblemCode names the kind of a problem, such as idempotency-in-progress.
type ProblemCode = api.Code

// Problem returns an error of this package as the problem that an HTTP client gets; ok is false for
// an error that this package does not know. The detail holds no token, no key and no address: the
// store's own error is for the log.
func Problem(err error) (problem ProblemDetails, ok bool) {
	for _, known := range codes {
		if !errors.Is(err, known.err) {
			continue
		}
		problem = api.NewProblem(known.code, detail(err, known.err))
		problem.RetryAfter = cmp.Or(redisstore.RetryAfter(err), problem.RetryAfter)
		switch {
		case errors.Is(known.err, ErrBodyCut):
			problem.Field = "body"
		case errors.Is(known.err, ErrUnauthorized):
			problem.Field = "Authorization"
		case errors.Is(known.err, ErrNoKeys):
			problem.Detail = "Nothing was done. Who is asking cannot be verified now: the keys of bearer tokens cannot be read, or the " +
				"service that knows callers does not answer. Ask again after Retry-After."
		}
		if wrong, ok := errors.AsType[*fieldError](err); ok {
			problem.Field = wrong.field
		}
		if doubt, ok := errors.AsType[*InDoubtError](err); ok {
			explain(&problem, doubt, passes(err))
		}
		if unsuitable, ok := errors.AsType[*redisstore.UnsuitableError](err); ok {
			problem.Detail = "Nothing was done: " + unsuitable.Error() + "."
		}
		if errors.Is(known.err, ErrGuardedTwice) {
			problem.Detail = "The handler did not run. The request is guarded twice with the same store, route and key, and would " +
				"wait for itself: the operator has to take one of the guards away, or give the routes different names."
		}
		if newer, ok := errors.AsType[*redisstore.NewerError](err); ok {
			problem.Detail = "Nothing was done: " + newer.Error() + "."
		}
		return problem, true
	}
	return api.NewProblem(api.InternalError, ""), false
}

// explain adds what a client needs to decide what to do about an operation in doubt. Where asked
// says so, whatever keeps its effect is being asked.
func explain(problem *api.Problem, doubt *InDoubtError, asked bool) {
	problem.Operation, problem.Since = doubt.Operation, api.At(doubt.Since)
	switch {
	case asked:
		problem.Retryable = true
		problem.Detail = "The first attempt ended without an answer. The service is being asked what had happened: ask again after Retry-After."
	case doubt.Refused:
		problem.Detail = "The first attempt ended without an answer. An operator has looked at the operation and closed it: " +
			"no request with this token or key will be taken."
	default:
		problem.Detail += " An operator can settle the operation; then this token or key has an answer, or may be used again."
	}
}

// wordless are the kinds whose own text is not for the client.
var wordless = []error{
	ErrInDoubt, redisstore.ErrUnavailable, redisstore.ErrUnsuitable, redisstore.ErrWrongType, redisstore.ErrUnknownOutcome,
}

// detail is the text of an error beyond its kind, "" if there is none for the client.
func detail(err, kind error) string {
	if err.Error() == kind.Error() || slices.ContainsFunc(wordless, func(one error) bool { return errors.Is(kind, one) }) {
		return ""
	}
	text := err.Error()
	if read, is := errors.AsType[*net.OpError](err); is { // which names this machine's address
		text = kind.Error() + ": " + read.Err.Error()
	}
	return strings.TrimPrefix(text, "idempotency: ")
}
