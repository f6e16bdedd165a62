package client

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/names"
)

// Policy is the outcome of a token whose attempt fell silent.
type Policy string

// The policies. A claim that was made under PolicyHold stays under PolicyHold, whatever a later one
// asks for.
const (
	PolicyHold     Policy = "hold"     // it stays in doubt: nothing runs again. The default
	PolicyTakeover Policy = "takeover" // the next claim may be granted, with a larger fence
)

// ClaimOptions are the options of a claim. The zero value of all but Fingerprint is the default.
type ClaimOptions struct {
	// of the request, 1 to 256 bytes of UTF-8, such as Fingerprint makes one: a claim with another
	// one is refused
	Fingerprint string
	Policy      Policy        // "" = PolicyHold
	Lease       time.Duration // how long the attempt may be silent, 100 ms to a day; 0 = 30 s
	// of Claim alone: the secret to be Grant.Lease, as [NewLeaseToken] makes it; "" = a new one
	LeaseToken string
	// of Do and DoKey: is asked when the operation is in doubt, and they go on with what it says.
	// nil = they return ErrInDoubt
	Resolve Resolver
}

func (t ClaimOptions) withDefaults() ClaimOptions {
	t.Policy = cmp.Or(t.Policy, PolicyHold)
	t.Lease = cmp.Or(t.Lease, 30*time.Second)
	return t
}

// Fingerprint is a digest of what makes a request the same: SHA-256 over the parts, each preceded
// by its length ("3:pay,"), as 43 characters of base64url. Clients in other languages that make it
// alike can replay each other's answers.
func Fingerprint(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// Token is an issued token.
type Token struct {
	Value     string // a secret: any caller that has it may use it
	Scope     string
	ExpiresAt time.Time // by the service's clock: until then it may be claimed
}

// Issue gets a token that may be claimed once within ttl, a second to 30 days; 0 means a day. A
// scope limits it to guarded routes of that scope; "" fits all. After ErrUnknownOutcome issue
// another: the token of this call was not handed out.
func (c *Client) Issue(ctx context.Context, scope string, ttl time.Duration) (Token, error) {
	request := api.TokenRequest{Scope: scope, TTLMs: givenMillis(ttl)}
	issue := call{op: "issue token", method: http.MethodPost, path: "/token", body: request, status: http.StatusCreated}
	issued, err := ask(ctx, c.exchange, issue, func(issued api.TokenIssued) bool { return names.Token.MatchString(issued.Token) })
	return Token{Value: issued.Token, Scope: issued.Scope, ExpiresAt: issued.ExpiresAt.Time}, err
}

// Status reads the state of a token; ErrUnknownToken if it was never issued, has expired or was
// lost. It changes nothing: where no answer came, the error is ErrUnavailable.
func (c *Client) Status(ctx context.Context, token string) (TokenStatus, error) {
	get := call{op: "token status", method: http.MethodGet, path: "/token/" + token, token: token}
	return ask(ctx, c.onToken, get, func(status TokenStatus) bool { return status.State != "" })
}

// Grant is a claim that was granted.
type Grant struct {
	Lease   string    // the secret that proves the claim
	Fence   int64     // larger than that of every attempt before it; below 2^53
	Attempt int       // counts from 1
	Until   time.Time // end of the lease by the service's clock
}

// Answer is the answer of an attempt, as it is recorded and replayed.
type Answer struct {
	Status int // 200 to 599; 0 = 200
	// one value a name. The service keeps those that are safe to replay, under canonical names
	Header map[string]string
	Body   []byte
	// the body is not recorded, or was too large to be: repeats get the rest, and a header says so
	NotKept bool
}

// Outcome is the result of a claim: a grant, or the recorded answer.
type Outcome struct {
	Granted bool
	Grant   Grant  // if Granted
	Answer  Answer // if not
	// of ClaimKey: the operation's name, under which it is extended, completed and given back
	Operation string
}

// Complete records the answer of the attempt that lease proves. Repeating it is harmless: the first
// answer stays. A late owner is accepted unless another attempt took over. ErrSuperseded: another
// attempt has the claim. ErrUnknownToken: the record is gone. ErrTooLarge: nothing was recorded; it
// can be tried with NotKept.
func (c *Client) Complete(ctx context.Context, token, lease string, answer Answer) error {
	return c.complete(ctx, subject{token: token}, lease, answer)
}

// Extend is the heartbeat of the attempt that lease proves: its lease ends that long from now (100
// ms to a day; 0 = the lease it was claimed with). It returns the end of the lease by the service's
// clock. Repeating it is harmless. Errors as Complete.
func (c *Client) Extend(ctx context.Context, token, lease string, span time.Duration) (time.Time, error) {
	return c.extend(ctx, subject{token: token}, lease, span)
}

// Release gives a claim back, so that the next one may begin. It is only for an attempt that
// provably never began. Repeating it is harmless. Errors as Complete.
func (c *Client) Release(ctx context.Context, token, lease string) error {
	return c.giveBack(ctx, subject{token: token}, lease)
}

// given is a value as it is sent; the zero value is left out, for the service's default.
func given[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

// givenMillis is given for a duration, rounded up.
func givenMillis(d time.Duration) *int64 {
	if d == 0 {
		return nil
	}
	return new(millis(d))
}

// millis is a duration as it is sent, rounded up.
func millis(d time.Duration) int64 {
	n := d.Milliseconds()
	if d > time.Duration(n)*time.Millisecond {
		n++
	}
	return n
}
