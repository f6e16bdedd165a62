package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Policy is the outcome of a token whose attempt fell silent.
type Policy string

// The policies. A claim that was made under PolicyHold stays under PolicyHold, whatever a later
// request asks for.
const (
	PolicyHold     Policy = "hold"     // it stays in doubt: nothing runs again. The default
	PolicyTakeover Policy = "takeover" // the next request may run, with a larger fence
)

// Key names one operation: by an id that the caller's work has already, of a message, a webhook's
// event, or a job and its day. The same id in another scope or from another principal is another
// operation. POST /operation/claim of the service and DoKey of package client name the same
// operation by the same three. A key without an id, as of a message that has none, is none: what it
// is given to answers [ErrKeyMissing]. [IssuedToken] and [KeyNamed] make keys of another kind.
type Key struct {
	Principal string // whose it is; "" = nobody's
	Scope     string // keeps ids of different kinds apart; that of a guarded route is the route
	ID        string

	record string // the operation's name; "" = not computed yet
	issued bool   // only a token that was issued will do
	token  string // that was issued: its signature is checked where tokens are signed
}

// IssuedToken is the key of a token that this service issued to a principal. To any other principal
// it is unknown.
func IssuedToken(principal, token string) Key {
	return Key{record: names.Digest("token", principal, token), issued: true, Principal: principal, token: token}
}

// named is the key with the operation's name.
func (k Key) named() Key {
	if k.record == "" && k.ID != "" {
		k.record = names.Digest("key", k.Principal, k.Scope, k.ID)
	}
	return k
}

// Operation returns the name of the operation, under which [Tokens.Operation] and [Tokens.Settle]
// know it. It is a digest, from which the key cannot be read.
func (k Key) Operation() string { return k.named().record }

// KeyNamed is the key of an operation by its name, for who has claimed it under a client's
// own key. It is not for a claim.
func KeyNamed(name string) Key {
	if !names.Digested.MatchString(name) {
		return Key{}
	}
	return Key{record: name}
}

// unknown is the refusal where there is no record of the key.
func (k Key) unknown() error {
	if k.issued {
		return ErrUnknownToken
	}
	return ErrUnknownOperation
}

// ClaimOptions are the options of a claim. The zero value of each field means its documented
// default.
type ClaimOptions struct {
	// of the request: another one is refused. It must not be empty, but for Do, which then takes
	// the same key for the same request
	Fingerprint string
	Policy      Policy        // "" = PolicyHold
	Lease       time.Duration // how long the attempt may be silent, MinLease to MaxLease; 0 = 30 s
	// how long the answer stays, from when it is recorded; a repeat does not renew it. Up to
	// MaxRetention; 0 = 24 h. Without an answer the record stays for [Config].KeepOpen
	Retention time.Duration
	// the scope of the route, for tokens that were issued for one; AnyScope fits all
	Scope string
	Ack   int // replicas that must have the claim; 0 = what the store asks for
	// of Claim alone: the secret that proves the claim, as [NewLeaseToken] makes it; "" = a new one
	LeaseToken string
	// the route that it is claimed on, shown to operators; cut to 200 bytes. "" = the scope of a
	// client's own key
	Route string
	// the request that it is claimed by, shown to operators; left out unless it is 1 to 128 visible
	// ASCII characters
	RequestID string
	// Resolve of Do ends the doubt about an operation whose attempt ended without an answer: Do
	// asks it, and then goes on. With a Route or scope, all operations of that name that were
	// claimed with a resolver are resolved in the background, also for other processes. nil = an
	// operation stays in doubt until somebody settles it
	Resolve Resolver
	// if the first attempt is still running, the caller waits for its end and needs a notification
	awaited bool
}

// AnyScope is the scope of a claim that takes tokens of every scope.
const AnyScope = "*"

func (t ClaimOptions) withDefaults() ClaimOptions {
	t.Policy = cmp.Or(t.Policy, PolicyHold)
	t.Lease = cmp.Or(t.Lease, 30*time.Second)
	t.Retention = cmp.Or(t.Retention, day)
	return t
}

func (t ClaimOptions) check() error {
	if t.Policy != PolicyHold && t.Policy != PolicyTakeover {
		return fmt.Errorf("idempotency: policy %q: hold or takeover", t.Policy)
	}
	if t.Lease < MinLease || t.Lease > MaxLease {
		return fmt.Errorf("idempotency: lease %v: %v to %v", t.Lease, MinLease, MaxLease)
	}
	if t.Retention < time.Millisecond || t.Retention > MaxRetention {
		return fmt.Errorf("idempotency: retention %v: %v to %v", t.Retention, time.Millisecond, MaxRetention)
	}
	if t.LeaseToken != "" && !secret.Valid(t.LeaseToken) {
		return errors.New("idempotency: lease token: 22 characters of base64url, as NewLeaseToken makes them for one attempt")
	}
	return nil
}

// Grant is a claim that was granted.
type Grant struct {
	LeaseToken string    // the secret that proves the claim
	Fence      int64     // larger than that of every attempt before it; below 2^53
	Attempt    int       // counts from 1
	Until      time.Time // end of the lease by the Redis server's clock
}

// Outcome is the result of a claim: a grant, or the recorded answer.
type Outcome struct {
	Granted bool
	Grant   Grant  // if Granted
	Answer  Answer // if not
}

// claim is Claim for an owner.
func (t *Tokens) claim(ctx context.Context, key Key, options ClaimOptions, owner string) (Outcome, error) {
	options = options.withDefaults()
	if err := options.check(); err != nil {
		return Outcome{}, err
	}
	if options.Fingerprint == "" {
		return Outcome{}, errors.New("idempotency: fingerprint: what is the same for the same request, such as a digest of it; " +
			"without one any request gets this one's answer")
	}
	if err := t.genuine(key); err != nil {
		return Outcome{}, err
	}
	terms := options.terms(key)
	reply, err := onstore.Run(ctx, t.on(options.Ack), scripts.TokenClaim, t.keys(key),
		&owner, &terms, options.Lease.Milliseconds(), &options.Scope, birth(key), word(options.awaited, "await"), t.keepOpen.Milliseconds())
	if err != nil && (len(reply) == 0 || reply.Word() == "granted") {
		return Outcome{}, fmt.Errorf("claim token: %w", err)
	}
	// only grants need confirmation by replicas
	return t.outcome(ctx, reply, key, owner)
}

// terms are what a claim writes into the record as it is, see scripts/lib/record.lua.
func (t ClaimOptions) terms(key Key) string {
	return strings.Join([]string{
		strconv.FormatInt(t.Retention.Milliseconds(), 10), strconv.FormatInt(t.Lease.Milliseconds(), 10),
		fingerprintWord(t.Fingerprint), string(t.Policy),
		shownRoute(cmp.Or(t.Route, key.Scope)), shownRequest(t.RequestID), whose(key.Principal), word(t.Resolve != nil, "1"),
	}, "\t")
}

var fingerprintForm = names.NewForm("!-~", 1, 128)

// fingerprintWord is a fingerprint as a record keeps it.
func fingerprintWord(text string) string {
	if fingerprintForm.MatchString(text) {
		return text
	}
	return names.Digest("fingerprint", text)
}

// soon is about how long a claim that is going to be given back stays.
const soon = time.Second

func word(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// whose is how a record names a principal; "" is none, and not noted.
func whose(principal string) string {
	if principal == "" {
		return ""
	}
	return names.Digest("principal", principal)
}

func birth(key Key) string {
	if key.issued {
		return "issued"
	}
	return "any"
}

func (t *Tokens) outcome(ctx context.Context, reply scripts.Reply, key Key, owner string) (Outcome, error) {
	switch reply.Word() {
	case "granted":
		grant := Grant{LeaseToken: owner}
		err := reply.Scan(&grant.Fence, &grant.Attempt, &grant.Until)
		return Outcome{Granted: true, Grant: grant}, err
	case "replay":
		stored, err := t.stored(ctx, reply, key)
		if err != nil {
			return Outcome{}, err
		}
		answer, err := t.answerKeys.open(key.record, stored)
		return Outcome{Answer: answer}, err
	case "busy", "resolving":
		left := time.Duration(0)
		if err := reply.Scan(&left); err != nil {
			return Outcome{}, err
		}
		if t.claims.has(key.record) {
			left = min(left, soon)
		}
		if reply.Word() == "resolving" {
			return Outcome{}, running(errInQuestion, left)
		}
		return Outcome{}, running(ErrInProgress, left)
	case "in-doubt":
		return Outcome{}, inDoubt(reply, key.record)
	case "mismatch":
		return Outcome{}, ErrMismatch
	case "unknown":
		return Outcome{}, key.unknown()
	}
	return Outcome{}, reply.Unexpected()
}

// stored is the recorded answer of a replay. A large one has to be asked for, so that others do not
// wait for it on a round trip that they share. Nothing is done if that fails.
func (t *Tokens) stored(ctx context.Context, reply scripts.Reply, key Key) (stored string, err error) {
	if len(reply.Values()) < 2 {
		err = reply.Scan(&stored)
		return stored, err
	}
	var size int
	if err = reply.Scan(&stored, &size); err != nil {
		return "", err
	}
	if err = t.reserve(ctx, int64(size)); err != nil {
		return "", fmt.Errorf("%w: %w", errNotAdmitted, err)
	}
	reply, err = pipeline.Of(t.store).RunLarge(ctx, size, scripts.TokenAnswer, t.keys(key)[:1])
	if err != nil {
		return "", fmt.Errorf("read a recorded answer: %w", err)
	}
	switch reply.Word() {
	case "ok":
		err = reply.Scan(&stored)
		return stored, err
	case "gone":
		return "", fmt.Errorf("%w: the recorded answer has just expired", redisstore.ErrUnavailable)
	}
	return "", reply.Unexpected()
}

func (t *Tokens) on(ack int) *redisstore.Store {
	if ack == 0 {
		return t.store
	}
	return t.store.WithAck(ack)
}

// Complete records the answer of the attempt that leaseToken proves, for the retention of its
// claim. Repeating it is harmless; a late answer is accepted unless another attempt took over.
// ErrSuperseded: another attempt has the claim. ErrUnknownToken: the record is gone.
func (t *Tokens) Complete(ctx context.Context, key Key, leaseToken string, answer Answer) error {
	if err := answer.check(); err != nil {
		return err
	}
	key = key.named()
	sealed := t.answerKeys.seal(key.record, answer)
	reply, err := t.owned(ctx, scripts.TokenComplete, key, leaseToken, sealed, t.done)
	if err == nil && reply.Word() == "ok" && t.completed != nil {
		t.completed()
	}
	return err
}

// Extend is the heartbeat of the attempt that leaseToken proves: its lease ends that long from now
// (0 = the lease it was claimed with). It returns the end of the lease by the Redis server's clock.
// Errors as Complete.
func (t *Tokens) Extend(ctx context.Context, key Key, leaseToken string, lease time.Duration) (time.Time, error) {
	milliseconds := ""
	if lease != 0 {
		if lease < MinLease || lease > MaxLease {
			return time.Time{}, fmt.Errorf("idempotency: lease %v: %v to %v", lease, MinLease, MaxLease)
		}
		milliseconds = strconv.FormatInt(lease.Milliseconds(), 10)
	}
	return t.extend(ctx, key.named(), leaseToken, milliseconds)
}

// Abandon states that the attempt that leaseToken proves has ended without an answer: the token is
// in doubt from now on, for [Config].KeepOpen at least. Errors as Complete.
func (t *Tokens) Abandon(ctx context.Context, key Key, leaseToken string) error {
	_, err := t.extend(ctx, key.named(), leaseToken, "0")
	return err
}

func (t *Tokens) extend(ctx context.Context, key Key, leaseToken, lease string) (time.Time, error) {
	reply, err := t.owned(ctx, scripts.TokenExtend, key, leaseToken, lease, t.keepOpen.Milliseconds(), t.done)
	if err != nil {
		return time.Time{}, err
	}
	var until time.Time
	err = reply.Scan(&until)
	return until, err
}

// Release gives a claim back, so that the next request may begin. It is only for an attempt that
// provably never began. Errors as Complete. A client's own key is forgotten by it, unless there
// were other attempts: then a second Release answers ErrUnknownToken.
func (t *Tokens) Release(ctx context.Context, key Key, leaseToken string) error {
	_, err := t.owned(ctx, scripts.TokenRelease, key.named(), leaseToken, t.done)
	return err
}

// owned runs a script that only the owner of a claim may run. The scripts compare leaseToken with
// the words of a record: a text that could be several of them is no proof of anything, as "" is.
func (t *Tokens) owned(
	ctx context.Context, script *scripts.Script, key Key, leaseToken string, args ...any,
) (scripts.Reply, error) {
	if err := t.genuine(key); err != nil {
		return nil, err
	}
	if !secret.Valid(leaseToken) {
		leaseToken = ""
	}
	reply, err := onstore.Run(ctx, t.store, script, t.keys(key), append([]any{leaseToken}, args...)...)
	if err != nil {
		return nil, err // it names the script
	}
	switch reply.Word() {
	case "ok", "already", "forgotten":
		return reply, nil
	case "stale", "answered":
		return nil, ErrSuperseded
	case "gone":
		return nil, key.unknown()
	}
	return nil, reply.Unexpected()
}
