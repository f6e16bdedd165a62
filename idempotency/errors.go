package idempotency

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
)

// What a request with a token can be told. Each is of one class of package redisstore; redisstore's own errors come through as well.
var (
	ErrKeyMissing   = policyRefusal("idempotency: the request has no idempotency header")
	ErrKeyMalformed = policyRefusal("idempotency: malformed idempotency header")
	ErrBodyTooLarge = redisstore.Refusal("idempotency: the body is larger than the route takes")
	ErrBodyCut      = redisstore.Refusal("idempotency: the body did not arrive whole")
	ErrInProgress   = policyRefusal("idempotency: the first attempt is still running")
	ErrInDoubt      = policyRefusal("idempotency: the first attempt ended without an answer")
	ErrMismatch     = policyRefusal("idempotency: the token was used for another request")
	ErrUnknownToken = redisstore.Refusal("idempotency: unknown token")
	ErrSuperseded   = redisstore.Loss("idempotency: another attempt has the claim")
)

// errPolicy is what all refusals have in common that a look at the route's policy explains.
var errPolicy = redisstore.Refusal("idempotency: see the route's policy")

// policyRefusal is a refusal that a look at the route's policy explains.
func policyRefusal(text string) error { return &explained{text} }

type explained struct{ text string }

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return errPolicy }

// InProgress is [ErrInProgress] with what is left of the running attempt's lease.
type InProgress struct{ Left time.Duration }

// Error says how long the running attempt may still be silent.
func (e *InProgress) Error() string {
	return fmt.Sprintf("%v; its lease has %v left", ErrInProgress, e.Left)
}

// Unwrap gives ErrInProgress.
func (e *InProgress) Unwrap() error { return ErrInProgress }

// codes says which problem each error is, the more particular before the class it belongs to.
var codes = []struct {
	err  error
	code wire.Code
}{
	{ErrKeyMissing, wire.KeyMissing},
	{ErrKeyMalformed, wire.KeyMalformed},
	{ErrBodyTooLarge, wire.PayloadTooLarge},
	{ErrBodyCut, wire.InvalidRequest},
	{ErrInProgress, wire.InProgress},
	{ErrInDoubt, wire.IdempotencyUnknown},
	{ErrMismatch, wire.PayloadMismatch},
	{ErrUnknownToken, wire.TokenUnknown},
	{ErrSuperseded, wire.Superseded},
	{redisstore.ErrUnknownOutcome, wire.OutcomeUnknown},
	{redisstore.ErrUnavailable, wire.StoreUnavailable},
	{redisstore.ErrWrongType, wire.StoreUnavailable},
}

// Problem says an error of this package as the problem that an HTTP client gets; ok is false for an error that this package does not know. The detail
// holds no token, no key and nothing of the store's address: what the store failed with is for the log.
func Problem(err error) (problem wire.Problem, ok bool) {
	for _, known := range codes {
		if !errors.Is(err, known.err) {
			continue
		}
		problem = wire.NewProblem(known.code, detail(err, known.err))
		if busy, ok := errors.AsType[*InProgress](err); ok {
			problem.RetryAfter = busy.Left
		}
		if known.code == wire.StoreUnavailable {
			problem.RetryAfter = time.Second
		}
		return problem, true
	}
	return wire.NewProblem(wire.InternalError, ""), false
}

// detail is what an error says beyond its kind, "" if nothing that is the client's business.
func detail(err, kind error) string {
	if errors.Is(kind, redisstore.ErrUnavailable) || errors.Is(kind, redisstore.ErrWrongType) || errors.Is(kind, redisstore.ErrUnknownOutcome) || err.Error() == kind.Error() {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "idempotency: ")
}
