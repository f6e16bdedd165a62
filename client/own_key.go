package client

import (
	"context"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coatcheck/coatcheck/api"
)

// OwnKey is a key of the caller's own for an operation: the id of a message, of a webhook's event,
// or of a job and its day. No token has to be issued for it. The operation is principal, scope and
// key: the keys of two principals never meet.
type OwnKey struct {
	Key   string // 1 to 1,024 bytes of UTF-8 without control characters
	Scope string // a name that keeps keys of different kinds apart; "" = none
	// how long the answer stays, from when it is recorded; a second to 400 days; 0 = a day. Without
	// an answer the service keeps the operation for 30 days, or for longer
	Retention time.Duration
}

const maxOwnKey = 1024

// ClaimKey is Claim for a key of the caller's own; ErrUnknownToken is none of its errors. The
// outcome tells the operation's name, for CompleteOperation, ExtendOperation and ReleaseOperation.
func (c *Client) ClaimKey(ctx context.Context, key OwnKey, terms ClaimOptions) (Outcome, error) {
	return c.claim(ctx, subject{own: &key}, terms)
}

// DoKey is Do for a key of the caller's own. Without a fingerprint in the options, the same key is
// taken for the same operation.
func (c *Client) DoKey(
	ctx context.Context, key OwnKey, terms ClaimOptions, work func(context.Context, *Attempt) ([]byte, error),
) (Result, error) {
	return c.do(ctx, subject{own: &key}, terms, work)
}

// CompleteOperation is Complete for what ClaimKey has granted.
func (c *Client) CompleteOperation(ctx context.Context, operation, lease string, answer Answer) error {
	return c.complete(ctx, subject{name: operation}, lease, answer)
}

// ExtendOperation is Extend for what ClaimKey has granted.
func (c *Client) ExtendOperation(ctx context.Context, operation, lease string, span time.Duration) (time.Time, error) {
	return c.extend(ctx, subject{name: operation}, lease, span)
}

// ReleaseOperation is Release for what ClaimKey has granted.
func (c *Client) ReleaseOperation(ctx context.Context, operation, lease string) error {
	return c.giveBack(ctx, subject{name: operation}, lease)
}

// ForgetOperation has the answer of an operation forgotten: the next claim is granted, with a
// larger fence. The errors: ErrAttemptRunning (RetryAfter is its remaining lease), ErrInDoubt,
// which Settle ends, ErrUnknownOperation. Repeating it is harmless. It needs the role admin.
func (c *Client) ForgetOperation(ctx context.Context, operation string) error {
	return c.onOperation(ctx, call{op: "forget operation", name: operation, method: http.MethodDelete, path: "/operation/" + operation})
}

// claimKey sends a claim of an operation.
func (c *Client) claimKey(ctx context.Context, key OwnKey, claim call, request api.ClaimRequest) error {
	if n := len(key.Key); n < 1 || n > maxOwnKey || !utf8.ValidString(key.Key) || strings.ContainsFunc(key.Key, unicode.IsControl) {
		return claim.invalid("a key has 1 to 1,024 bytes of UTF-8 without control characters")
	}
	claim.path = "/operation/claim"
	claim.body = api.OperationClaim{
		Key: key.Key, Scope: key.Scope, ClaimRequest: request, RetentionMs: givenMillis(key.Retention),
	}
	return c.exchange(ctx, claim)
}
