package idempotency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// Operation is the state of an operation, or of an issued token. It holds no token, no key and no
// secret.
type Operation struct {
	// as [Attempt.Operation]: the service's own records have the operation under it
	Name      string
	State     State
	Scope     string    // of an issued token
	Route     string    // the route that the newest attempt came on; "" = not known
	RequestID string    // of the newest attempt; "" = not known
	Began     time.Time // when the newest attempt was granted; the zero time = none was
	// end of its lease: since then the operation is in doubt, if it is; the zero time = none was
	Until     time.Time
	ExpiresAt time.Time // when the record goes
	Attempts  int       // how many were granted
	Fence     int64     // of the newest attempt; 0 = none was
	Policy    Policy    // that the newest attempt asked for
	Decision  Decision  // of an operator, the last one; "" = none

	whose string
	asks  bool // the resolver of its route may be asked
}

// IsOf reports whether an operation is a principal's, as the key of its claim has it. One
// without a principal is nobody's: a name proves nothing, since whoever knows principal, scope and
// key can compute it.
func (o Operation) IsOf(principal string) bool { return principal != "" && o.whose == whose(principal) }

// Decision is an operator's decision about an operation in doubt after checking its effect.
type Decision string

// The decisions of an operator.
const (
	// DecisionHappened means that it has had its effect: its answer is recorded, and every repeat
	// gets it.
	DecisionHappened Decision = "completed"
	// DecisionNotBegun means that it has had no effect: the next request may begin, with a larger
	// fence.
	DecisionNotBegun Decision = "not-begun"
	// DecisionRefused lets no request begin; repeats get an error that says that an operator has
	// closed it.
	DecisionRefused Decision = "refused"
)

// Settlement ends the doubt about an operation.
type Settlement struct {
	Decision Decision
	Answer   Answer // to record with DecisionHappened, for the retention of the claim
	// LeaseToken is that of a [Resolving]; "" = an operator has decided
	LeaseToken string
}

// Settle ends the doubt about an operation, by its name. The attempt in doubt loses its claim: if
// it still ends, it gets ErrSuperseded. Repeating a settlement is harmless. An operation that was
// refused may be settled otherwise. Errors: [ErrAttemptRunning], also to an operator while another
// one resolves the operation; [ErrNotInDoubt]; [ErrUnknownOperation]; and [ErrSuperseded] if it is
// not the owner's to resolve any more.
func (t *Tokens) Settle(ctx context.Context, operation string, s Settlement) error {
	var answer []byte
	switch s.Decision {
	case DecisionHappened:
		if err := s.Answer.check(); err != nil {
			return err
		}
		s.Answer = s.Answer.recordable()
		answer = t.answerKeys.seal(operation, s.Answer)
	case DecisionNotBegun, DecisionRefused:
	default:
		return fmt.Errorf("idempotency: decision %q: %s, %s or %s", s.Decision, DecisionHappened, DecisionNotBegun, DecisionRefused)
	}
	if !names.Digested.MatchString(operation) {
		return ErrUnknownOperation
	}
	reply, err := onstore.Run(ctx, t.store, scripts.OperationSettle, t.keysOf(operation),
		string(s.Decision), answer, s.digest(), t.done, s.LeaseToken)
	if err != nil {
		return fmt.Errorf("settle operation: %w", err)
	}
	switch reply.Word() {
	case "ok", "already":
		return nil
	case "running":
		left := time.Duration(0)
		err := reply.Scan(&left)
		return errors.Join(running(ErrAttemptRunning, left), err)
	case "stale":
		return ErrSuperseded
	case "not-in-doubt":
		return fmt.Errorf("%w: it is %s", ErrNotInDoubt, reply.Values()[0])
	case "unknown":
		return ErrUnknownOperation
	}
	return reply.Unexpected()
}

// Forget forgets the answer that an operation has, by its name, so that the next request begins,
// with a larger fence. Repeating it is harmless. Errors: [ErrAttemptRunning]; [ErrInDoubt], which
// Settle ends; [ErrUnknownOperation].
func (t *Tokens) Forget(ctx context.Context, operation string) error {
	if !names.Digested.MatchString(operation) {
		return ErrUnknownOperation
	}
	reply, err := onstore.Run(ctx, t.store, scripts.OperationForget, t.keysOf(operation)[:1])
	if err != nil {
		return fmt.Errorf("forget operation: %w", err)
	}
	switch reply.Word() {
	case "ok", "already":
		return nil
	case "running":
		left := time.Duration(0)
		err := reply.Scan(&left)
		return errors.Join(running(ErrAttemptRunning, left), err)
	case "in-doubt":
		return inDoubt(reply, operation)
	case "unknown":
		return ErrUnknownOperation
	}
	return reply.Unexpected()
}

// digest is the same for two equal settlements, and for no others. The answer itself cannot be
// compared where answers are encrypted.
func (s Settlement) digest() string {
	if s.Decision != DecisionHappened {
		return string(s.Decision)
	}
	parts := []string{"settle", strconv.Itoa(s.Answer.Status), string(s.Answer.Body)}
	for _, name := range slices.Sorted(maps.Keys(s.Answer.Header)) {
		parts = append(append(parts, name, strconv.Itoa(len(s.Answer.Header[name]))), s.Answer.Header[name]...)
	}
	return names.Digest(parts...)
}

// Operation returns one operation; ErrUnknownOperation if it has expired, was lost, or never was.
func (t *Tokens) Operation(ctx context.Context, name string) (Operation, error) {
	if !names.Digested.MatchString(name) {
		return Operation{}, ErrUnknownOperation
	}
	return t.show(ctx, KeyNamed(name))
}

func (t *Tokens) show(ctx context.Context, key Key) (Operation, error) {
	reply, err := onstore.Run(ctx, t.store, scripts.OperationGet, t.keys(key)[:1])
	if err != nil {
		return Operation{}, fmt.Errorf("show operation: %w", err)
	}
	switch reply.Word() {
	case "ok":
		return scanOperation(reply, key.record)
	case "unknown":
		return Operation{}, key.unknown()
	}
	return Operation{}, reply.Unexpected()
}

func scanOperation(reply scripts.Reply, name string) (Operation, error) {
	o := Operation{Name: name}
	var state, policy, decision, asks string
	err := reply.Scan(&state, &o.Route, &o.RequestID, &o.Fence, &o.Attempts, &policy,
		&o.Began, &o.Until, &o.ExpiresAt, &decision, &o.Scope, &o.whose, &asks)
	o.asks = asks != ""
	o.State, o.Policy, o.Decision = State(state), Policy(policy), Decision(decision)
	for _, at := range []*time.Time{&o.Began, &o.Until} {
		if at.UnixMilli() == 0 {
			*at = time.Time{}
		}
	}
	return o, err
}

func inDoubt(reply scripts.Reply, operation string) error {
	doubt := &InDoubtError{Operation: operation}
	var decision string
	if err := reply.Scan(&doubt.Since, &decision); err != nil {
		return err
	}
	doubt.Refused = decision == string(DecisionRefused)
	return doubt
}

// shownRoute is a route as operators see it. A path that a client chose may be long, and hold
// anything; a tab or a line feed would end a word of the record.
func shownRoute(route string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, route[:min(len(route), 200)])
}

var requestForm = names.NewForm("!-~", 1, 128)

// shownRequest is a request's id as operators see it.
func shownRequest(id string) string {
	if requestForm.MatchString(id) {
		return id
	}
	return ""
}
