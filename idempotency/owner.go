package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
)

// NewLeaseToken returns a new secret for [ClaimOptions].LeaseToken: 128 random bits as 22
// characters of base64url. It is safe for concurrent use.
func NewLeaseToken() string { return secret.New() }

// Claim checks a token and claims it in one step. The errors: ErrInProgress, ErrInDoubt,
// ErrMismatch, ErrUnknownToken; redisstore.ErrUnavailable (nothing was done),
// redisstore.ErrUnknownOutcome (the claim may stand).
//
// After an unknown outcome a caller that has set [ClaimOptions].LeaseToken calls again with the
// same one, and gets the same grant if the claim stands; or it gives the claim back with Release.
// Make a new one for each attempt, by [NewLeaseToken]: two attempts with one lease token are both
// granted. A claim without one cannot be asked for again, so it is given back in the background.
func (t *Tokens) Claim(ctx context.Context, key Key, options ClaimOptions) (Outcome, error) {
	key = key.named()
	if options.LeaseToken != "" {
		return t.claim(ctx, key, options, options.LeaseToken)
	}
	owner := secret.New()
	outcome, err := t.claim(ctx, key, options, owner)
	return outcome, t.notStarted(ctx, key, owner, options.withDefaults(), err)
}

// notStarted gives a claim of unknown outcome back, since nothing was started for it: at once if
// Redis has it and only replicas do not, else in the background. Other errors come back unchanged.
func (t *Tokens) notStarted(ctx context.Context, key Key, owner string, options ClaimOptions, err error) error {
	if !errors.Is(err, redisstore.ErrUnknownOutcome) {
		return err
	}
	if _, has := errors.AsType[*redisstore.ShortfallError](err); has {
		if _, failed := t.release(context.WithoutCancel(ctx), key, owner); failed == nil {
			t.confirmRelease(key, owner, options)
			return fmt.Errorf("nothing was started: %w", err)
		}
	}
	t.giveBack(key, owner, options)
	return fmt.Errorf("nothing was started: %w", err)
}
