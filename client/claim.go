package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/secret"
)

const claimTries = 5 // of one claim whose reply does not come

// NewLeaseToken returns a new secret for [ClaimOptions].LeaseToken: 128 random bits as 22
// characters of base64url. It is safe for concurrent use.
func NewLeaseToken() string { return secret.New() }

// Claim checks a token and claims it in one step. The errors: ErrInProgress (RetryAfter is the
// remaining lease of the running attempt), ErrInDoubt, ErrMismatch, ErrUnknownToken; ErrUnavailable
// (nothing was done); ErrUnknownOutcome (the claim may stand: do not begin).
//
// A claim whose reply is lost is asked for again by itself, up to four times while ctx lives, and
// gets the same grant. After ErrUnknownOutcome a caller that set [ClaimOptions].LeaseToken can go
// on asking with it, or give the claim back with Release, where it is the lease; else the token is
// in progress until its lease lapses. Make a new one for each attempt, by [NewLeaseToken]: two
// attempts with one lease token are both granted.
func (c *Client) Claim(ctx context.Context, token string, terms ClaimOptions) (Outcome, error) {
	return c.claim(ctx, subject{token: token}, terms)
}

func (c *Client) claim(ctx context.Context, on subject, terms ClaimOptions) (Outcome, error) {
	terms.LeaseToken = cmp.Or(terms.LeaseToken, NewLeaseToken())
	outcome, err := c.claimOnce(ctx, on, terms)
	unknown := err // returned unless a repeat decides the outcome
	began, wait := time.Now(), 100*time.Millisecond
	for try := 2; undecided(err, unknown) && try <= claimTries; try++ {
		if try > 2 && time.Since(began) > c.timeout || !rest(ctx, wait) {
			break
		}
		wait *= 2
		outcome, err = c.claimOnce(ctx, on, terms)
	}
	if undecided(err, unknown) {
		return Outcome{}, unknown
	}
	return outcome, err
}

// undecided reports whether the outcome of a claim is still open whose first error is first. Once
// it is unknown, only an answer about the token itself decides it.
func undecided(err, first error) bool {
	if !errors.Is(first, ErrUnknownOutcome) || err == nil {
		return false
	}
	for _, decides := range []error{ErrInProgress, ErrInDoubt, ErrMismatch, ErrUnknownToken} {
		if errors.Is(err, decides) {
			return false
		}
	}
	return true
}

// rest waits, and reports whether the context lives.
func rest(ctx context.Context, wait time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

func (c *Client) claimOnce(ctx context.Context, on subject, terms ClaimOptions) (Outcome, error) {
	terms = terms.withDefaults()
	var claimed api.Claimed
	claim := call{op: "claim " + on.kind(), method: http.MethodPost, lease: terms.LeaseToken, into: &claimed}
	if !secret.Valid(terms.LeaseToken) {
		return Outcome{}, claim.invalid("a lease token has 22 characters of base64url, as NewLeaseToken makes them for one attempt")
	}
	if !utf8.ValidString(terms.Fingerprint) { // JSON would write others of its kind alike
		return Outcome{}, claim.invalid("a fingerprint has 1 to 256 bytes of UTF-8: write a digest in hex or base64")
	}
	request := api.ClaimRequest{Fingerprint: terms.Fingerprint, LeaseMs: new(millis(terms.Lease)), Policy: string(terms.Policy)}
	var err error
	if on.own != nil {
		err = c.claimKey(ctx, *on.own, claim, request)
	} else {
		claim.token, claim.path, claim.body = on.token, "/token/"+on.token+"/claim", request
		err = c.onToken(ctx, claim)
	}
	if err != nil {
		return Outcome{}, err
	}
	named := on.own == nil || names.Digested.MatchString(claimed.Operation)
	switch {
	case claimed.Outcome == "granted" && leaseForm.MatchString(claimed.Lease) && claimed.Fence > 0 && named:
		grant := Grant{claimed.Lease, claimed.Fence, claimed.Attempt, claimed.LeaseUntil.Time}
		return Outcome{Granted: true, Grant: grant, Operation: claimed.Operation}, nil
	case claimed.Outcome == "replay" && claimed.Response != nil && named:
		answer := claimed.Response
		return Outcome{Answer: Answer{answer.Status, answer.Headers, answer.Body, answer.NotKept}, Operation: claimed.Operation}, nil
	}
	return Outcome{}, claim.unreadable()
}
