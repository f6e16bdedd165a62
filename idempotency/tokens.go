package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/notifier"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/secret"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Bounds of what a caller may ask for.
const (
	MinTTL   = time.Second            // how long an issued token waits for its claim, at least
	MaxTTL   = 30 * 24 * time.Hour    // … and at most
	MinLease = 100 * time.Millisecond // how long an attempt may be silent, at least
	MaxLease = 24 * time.Hour         // … and at most

	// MaxRetention is the longest time for which an answer is kept: that of a job which runs once a
	// year, and some weeks.
	MaxRetention = 400 * 24 * time.Hour

	MinKeepOpen = 30 * 24 * time.Hour   // how long an operation without an answer stays, at least
	MaxKeepOpen = 3650 * 24 * time.Hour // … and at most

	day      = 24 * time.Hour
	maxScope = 200 // characters
)

// Config is what all routes of a service share. The zero value of each field means its documented
// default.
type Config struct {
	// Principal identifies the caller. Keys, tokens and answers of two principals never meet. nil =
	// the caller's Authorization header, as [HeaderPrincipal] reads it; HeaderPrincipal() without
	// names puts all callers into one key space, for services that trust each other. A request with
	// a token or key whose caller is an error is refused with it, as [ErrUnauthorized]: 401.
	Principal func(*http.Request) (string, error)
	// OneCaller says that callers are meant to be one where Principal returns "", as with
	// HeaderPrincipal() without names; false = a request with a client's own key and no principal
	// is a warning in the log, once a minute
	OneCaller bool
	// answers a refused request; nil = problem+json as Problem returns it
	Error func(http.ResponseWriter, *http.Request, error)
	// nil = slog.Default(). It never sees a token or a key
	Logger *slog.Logger

	// TokenKeys sign the tokens that are issued, with the first key; a token is checked with all of
	// them, so that keys can be changed without a gap. With keys, a token that was not issued, or
	// that was issued to another principal, is refused without asking Redis. nil = tokens are not
	// signed.
	TokenKeys []Secret
	// AnswerKeys encrypt the answers that are stored, with the first key; stored answers are read
	// with all of them. nil = answers are stored unencrypted.
	AnswerKeys []Secret
	// PolicyURL is where a client can read what a route takes: refusals of a guarded route link to
	// it (RFC 8288, rel="describedby"). "" = no link.
	PolicyURL string
	// ProblemBase comes before the code in the "type" of problems (RFC 9457), such as
	// https://shop.example/problems/ for pages that your application has; a URI reference. "" =
	// /problems/, which the service serves.
	ProblemBase string
	// Completed is called after an answer was recorded, by the attempt itself or for it later. It
	// may be called from several goroutines at once. nil = it is not.
	Completed func()
	// Resolved is called when a [Resolver] was asked about an operation in doubt: with what it has
	// said, or "" if it was asked in vain. It may be called from several goroutines at once. nil =
	// it is not.
	Resolved func(operation Operation, decision Decision)
	// KeepOpen is how long an operation without an answer stays, from its last claim or heartbeat:
	// until then nothing runs again under its key unless it is settled. At least MinKeepOpen, up to
	// ten years; 0 = MinKeepOpen.
	KeepOpen time.Duration
	// Admit is asked before each claim of Middleware and Do, and again when a request has waited
	// for another attempt. An error refuses it, by default with 503 and its text, and nothing is
	// claimed: for a service that stops. It may be called from several goroutines at once. nil =
	// all are admitted.
	Admit func() error
	// Reserve is asked before a recorded answer of many bytes is read, with the context of the
	// call: for a service that bounds its memory. An error refuses the repeat, as that of Admit.
	// nil = all are read.
	Reserve func(ctx context.Context, bytes int64) error
}

// Tokens issues tokens and runs their state machine on one store. It is safe for concurrent use.
// Close it when no request is under way any more.
type Tokens struct {
	store     *redisstore.Store
	principal func(*http.Request) (string, error)
	fail      func(http.ResponseWriter, *http.Request, error)
	log       *slog.Logger
	answers   *backlog                     // to be recorded
	claims    *backlog                     // to be given back
	released  *backlog                     // claims that were, where replicas have to confirm that
	notifier  *notifier.Notifier[struct{}] // of the end of attempts
	asker     *asker                       // of resolvers

	callers    *callers
	tokenKeys  ring
	answerKeys sealer
	policyURL  string
	typeBase   string // "" = that of package api
	completed  func()
	// is Config.Resolved
	tellResolved func(Operation, Decision)
	keepOpen     time.Duration
	admit        func() error
	reserve      func(context.Context, int64) error
	handled      sync.Map // the pattern of each route's name, of Handle
	routes       sync.Map // the names of all routes that have one
	// the channel on which the end of an attempt is published to waiting processes
	done string
	// the list of the operations under way; "" in a cluster, which has one for each slot
	listed string
}

// New returns the tokens of a store. It panics without a store, if a key is not as [Secret]
// requires ([ParseSecrets] returns valid keys only), if ProblemBase is no URI reference, and if
// KeepOpen is out of its bounds.
func New(store *redisstore.Store, config Config) *Tokens {
	if store == nil {
		panic("idempotency: New needs a store: see redisstore.Open")
	}
	if _, err := url.Parse(config.ProblemBase); err != nil {
		panic("idempotency: Config.ProblemBase is no URI reference: " + err.Error())
	}
	keepOpen := cmp.Or(config.KeepOpen, MinKeepOpen)
	if keepOpen < MinKeepOpen || keepOpen > MaxKeepOpen {
		panic(fmt.Sprintf("idempotency: Config.KeepOpen %v: %v to %v", keepOpen, MinKeepOpen, MaxKeepOpen))
	}
	t := &Tokens{
		typeBase: config.ProblemBase,
		store:    store, principal: config.Principal, fail: config.Error, log: config.Logger,
		tokenKeys: newRing(config.TokenKeys), answerKeys: newSealer(config.AnswerKeys), policyURL: config.PolicyURL,
		completed: config.Completed, tellResolved: config.Resolved, keepOpen: keepOpen, admit: config.Admit,
		reserve: config.Reserve, done: onstore.Key(store, "token", "done"),
	}
	if store.Mode() != redisstore.ModeCluster {
		t.listed = onstore.SlotKey(store, "operations", underWay, "")
	}
	if t.principal == nil {
		t.principal = HeaderPrincipal("Authorization")
	}
	if t.admit == nil {
		t.admit = func() error { return nil }
	}
	if t.reserve == nil {
		t.reserve = func(context.Context, int64) error { return nil }
	}
	if t.fail == nil {
		t.fail = t.writeProblem
	}
	t.log = cmp.Or(t.log, slog.Default())
	t.callers = newCallers(t.log, config.OneCaller)
	t.notifier = notifier.New(store, t.done, t.log, func(record string) (string, struct{}) { return record, struct{}{} })
	t.answers = newBacklog("an answer is not recorded; its token is in doubt when its lease has lapsed", answerRoom, t.log)
	t.claims = newBacklog("a claim that nothing was started for is not given back; its token is in doubt when its lease has lapsed",
		claimRoom, t.log)
	t.released = newBacklog("", claimRoom, t.log)
	t.asker = newAsker(t)
	return t
}

func (t *Tokens) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	problem, _ := Problem(err)
	if problem.Status >= http.StatusInternalServerError { // the client is not told the cause
		t.log.ErrorContext(r.Context(), "idempotency: a request failed", "code", string(problem.Code), "error", err)
	}
	if t.typeBase != "" {
		problem.Type = t.typeBase + string(problem.Code)
	}
	if errors.Is(err, errPolicy) {
		problem.See = t.policyURL
	}
	problem.Write(w)
}

// Close waits until pending answers are recorded and uncertain claims are given back, or until two
// seconds after the context has ended. The remaining ones are in doubt when their lease has lapsed,
// and are logged.
func (t *Tokens) Close(ctx context.Context) error {
	ctx, cancel := keepalive.Linger(ctx, keepalive.Parting)
	defer cancel()
	t.notifier.Close()
	err := t.asker.close(ctx)
	t.claims.shut()
	err = errors.Join(err, t.answers.close(ctx), t.claims.close(ctx))
	t.released.end()
	return err
}

// Token is an issued token.
type Token struct {
	// 128 random bits and, with [Config].TokenKeys, a signature; safe in a URL and a header. Any
	// caller that has it may use it
	Value     string
	Scope     string
	ExpiresAt time.Time // by the Redis server's clock: until then it may be claimed
}

// Issue stores a token for a principal that may be claimed once within ttl (MinTTL to MaxTTL; 0
// means a day). A scope limits it to routes of that scope; "" fits all. After an unknown outcome
// issue another: the token of this call was not handed out.
func (t *Tokens) Issue(ctx context.Context, principal, scope string, ttl time.Duration) (Token, error) {
	ttl = cmp.Or(ttl, day)
	if ttl < MinTTL || ttl > MaxTTL || len(scope) > maxScope || strings.ContainsFunc(scope, unicode.IsControl) {
		return Token{}, fmt.Errorf("idempotency: ttl %v: %v to %v; scope %q: up to %d bytes without control characters",
			ttl, MinTTL, MaxTTL, scope, maxScope)
	}
	token := Token{Value: t.tokenKeys.sign(principal, secret.New()), Scope: scope}
	reply, err := onstore.Run(ctx, t.store, scripts.TokenIssue, t.keys(IssuedToken(principal, token.Value))[:1], ttl.Milliseconds(), scope)
	if err != nil {
		return Token{}, fmt.Errorf("issue token: %w", err)
	}
	if reply.Word() != "ok" {
		return Token{}, reply.Unexpected()
	}
	err = reply.Scan(&token.ExpiresAt)
	return token, err
}

// State is the state of a token.
type State string

// The states of a token. InDoubt is a claim whose lease has lapsed with no answer recorded. Refused
// is one that an operator has closed: no request begins, and it may be settled otherwise.
const (
	StateIssued    State = "issued"
	StateClaimed   State = "claimed"
	StateInDoubt   State = "in-doubt"
	StateRefused   State = "refused"
	StateCompleted State = "completed"
)

// Status returns the operation of a key as [Tokens.Operation] does.
func (t *Tokens) Status(ctx context.Context, key Key) (Operation, error) {
	key = key.named()
	if err := t.genuine(key); err != nil {
		return Operation{}, err
	}
	return t.show(ctx, key)
}

// keys are the Redis keys of an operation: its record, and the list of the operations under way
// that it belongs to.
func (t *Tokens) keys(key Key) []string { return t.keysOf(key.named().record) }

func (t *Tokens) keysOf(operation string) []string {
	list := t.listed
	if list == "" {
		list = onstore.SlotKey(t.store, "operations", underWay, operation)
	}
	return []string{onstore.Key(t.store, "token", operation), list}
}

// underWay is the part of a key that the lists of operations under way have in common.
const underWay = "under-way"

// genuine refuses an issued token with a wrong signature, and the key of no operation. A client's
// own key has no signature.
func (t *Tokens) genuine(key Key) error {
	if key.record == "" {
		return fmt.Errorf("%w: its key is empty, and all without one would be one operation", ErrKeyMissing)
	}
	if key.issued && !t.tokenKeys.verify(key.Principal, key.token) {
		return ErrUnknownToken
	}
	return nil
}
