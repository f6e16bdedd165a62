package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/names"
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
}

// IsOf reports whether an operation is a principal's, as [ClaimOptions].Principal has noted it.
// Where nothing was noted it is everybody's who knows its name.
func (o Operation) IsOf(principal string) bool { return o.whose == "" || o.whose == whose(principal) }

// Decision is an operator's decision about an operation in doubt after checking its effect.
type Decision string

// The decisions of an operator.
const (
	// Happened means that it has had its effect: its answer is recorded, and every repeat gets it.
	Happened Decision = "completed"
	// NotBegun means that it has had no effect: the next request may begin, with a larger fence.
	NotBegun Decision = "not-begun"
	// Refuse lets no request begin; repeats get an error that says that an operator has closed it.
	Refuse Decision = "refused"
)

// Settlement ends the doubt about an operation.
type Settlement struct {
	Decision  Decision
	Answer    Answer        // to record with Happened
	Retention time.Duration // how long the record stays, at least; 0 = 24 h
}

// Settle ends the doubt about an operation, by its name. The attempt in doubt loses its claim: if
// it still ends, it gets ErrSuperseded. Repeating a settlement is harmless. Errors:
// [ErrAttemptRunning], [ErrNotInDoubt], [ErrUnknownToken]; an operation
// that was refused may be settled otherwise.
func (t *Tokens) Settle(ctx context.Context, operation string, s Settlement) error {
	var answer []byte
	switch s.Decision {
	case Happened:
		if err := s.Answer.check(); err != nil {
			return err
		}
		answer = t.answerKeys.seal(operation, s.Answer)
	case NotBegun, Refuse:
	default:
		return fmt.Errorf("idempotency: decision %q: %s, %s or %s", s.Decision, Happened, NotBegun, Refuse)
	}
	if !names.Digested.MatchString(operation) {
		return ErrUnknownToken
	}
	reply, err := t.store.Run(ctx, scripts.OperationSettle, t.keysOf(operation),
		string(s.Decision), answer, retained(s.Retention).Milliseconds(), s.digest(), t.done)
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
	case "not-in-doubt":
		return fmt.Errorf("%w: it is %s", ErrNotInDoubt, reply.Values()[0])
	case "unknown":
		return ErrUnknownToken
	}
	return reply.Unexpected()
}

// Forget forgets the answer that an operation has, by its name, so that the next request begins,
// with a larger fence. Repeating it is harmless. Errors: [ErrAttemptRunning]; [ErrInDoubt], which
// Settle ends; [ErrUnknownToken].
func (t *Tokens) Forget(ctx context.Context, operation string) error {
	if !names.Digested.MatchString(operation) {
		return ErrUnknownToken
	}
	reply, err := t.store.Run(ctx, scripts.OperationForget, t.keysOf(operation)[:1])
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
		return ErrUnknownToken
	}
	return reply.Unexpected()
}

// digest is the same for two equal settlements, and for no others. The answer itself cannot be
// compared where answers are encrypted.
func (s Settlement) digest() string {
	if s.Decision != Happened {
		return string(s.Decision)
	}
	parts := []string{"settle", strconv.Itoa(s.Answer.Status), string(s.Answer.Body)}
	for _, name := range slices.Sorted(maps.Keys(s.Answer.Header)) {
		parts = append(append(parts, name, strconv.Itoa(len(s.Answer.Header[name]))), s.Answer.Header[name]...)
	}
	return names.Digest(parts...)
}

// Operation returns one operation; ErrUnknownToken if it has expired, was lost, or never was.
func (t *Tokens) Operation(ctx context.Context, name string) (Operation, error) {
	if !names.Digested.MatchString(name) {
		return Operation{}, ErrUnknownToken
	}
	reply, err := t.store.Run(ctx, scripts.OperationGet, t.keysOf(name)[:1])
	if err != nil {
		return Operation{}, fmt.Errorf("show operation: %w", err)
	}
	switch reply.Word() {
	case "ok":
		return scanOperation(reply, name)
	case "unknown":
		return Operation{}, ErrUnknownToken
	}
	return Operation{}, reply.Unexpected()
}

func scanOperation(reply scripts.Reply, name string) (Operation, error) {
	o := Operation{Name: name}
	var state, policy, decision string
	err := reply.Scan(&state, &o.Route, &o.RequestID, &o.Fence, &o.Attempts, &policy, &o.Began, &o.Until, &o.ExpiresAt, &decision, &o.Scope, &o.whose)
	o.State, o.Policy, o.Decision = State(state), Policy(policy), Decision(decision)
	for _, at := range []*time.Time{&o.Began, &o.Until} {
		if at.UnixMilli() == 0 {
			*at = time.Time{}
		}
	}
	return o, err
}

// DoubtPage asks for a page of the operations in doubt.
type DoubtPage struct {
	Prefix string // beginning of the operation's name or of its route; "" = any
	Cursor string // of the page before; "" = the first page
	Max    int    // how many, up to 1000; 0 = 100
}

// maxScanned is how many operations one page reads at most: with a prefix it may hold fewer than
// were asked for, and more may follow.
const maxScanned = 1000

// InDoubt lists operations in doubt, the longest in doubt first, and the cursor of the next page,
// "" if this is the last. Its cost grows with the page, not with the tokens that there are: it
// looks at the list at most twice, in a cluster in every slot, and reads up to 1000 operations.
// An operation whose doubt ends meanwhile may be missing. ErrCursor: that is no cursor.
func (t *Tokens) InDoubt(ctx context.Context, page DoubtPage) (list []Operation, next string, err error) {
	after, err := parseCursor(page.Cursor)
	if err != nil {
		return nil, "", err
	}
	page.Max = min(cmp.Or(max(page.Max, 0), 100), maxScanned)
	wanted := page.Max // of one look at the list
	if page.Prefix != "" {
		wanted = maxScanned
	}
	for scanned := 0; scanned < maxScanned; wanted = maxScanned - scanned {
		entries, err := t.entries(ctx, after, wanted)
		if err != nil {
			return nil, "", err
		}
		for some := range slices.Chunk(entries, atOnce) {
			found, err := t.operations(ctx, some)
			if err != nil {
				return nil, "", err
			}
			for i, operation := range found {
				if page.takes(operation) {
					list = append(list, operation)
				}
				if after = *some[i]; len(list) == page.Max && (len(entries) == wanted || some[i] != entries[len(entries)-1]) {
					return list, after.cursor(), nil
				}
			}
		}
		if len(entries) < wanted {
			return list, "", nil
		}
		scanned += len(entries)
	}
	return list, after.cursor(), nil
}

// Doubts are the operations in doubt, as [Tokens.Doubts] found them.
type Doubts struct {
	Operations int         // how many there are
	Oldest     []Operation // up to 256 of them, the longest in doubt first
}

// oldest is how many operations in doubt Doubts reads.
const oldest = 256

// Doubts counts all operations in doubt and reads the oldest. Its cost does not grow with their
// number, nor with the tokens that there are; in a cluster it asks every slot. The figures of a
// list that changes meanwhile may be of a moment apart.
func (t *Tokens) Doubts(ctx context.Context) (Doubts, error) {
	var found Doubts
	page := DoubtPage{Max: oldest}
	for len(found.Oldest) < oldest {
		list, next, err := t.InDoubt(ctx, page)
		if err != nil {
			return Doubts{}, err
		}
		found.Oldest = append(found.Oldest, list...)
		if next == "" {
			found.Operations = len(found.Oldest)
			return found, nil
		}
		page.Cursor, page.Max = next, oldest-len(found.Oldest)
	}
	counted, err := t.countInDoubt(ctx)
	found.Operations = max(counted, len(found.Oldest))
	return found, err
}

func (t *Tokens) countInDoubt(ctx context.Context) (int, error) {
	var counted atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, key := range t.store.SlotKeys("operations", underWay) {
		group.Go(func() error {
			reply, err := t.store.Run(ctx, scripts.OperationCount, []string{key})
			if err != nil {
				return fmt.Errorf("count operations: %w", err)
			}
			if reply.Word() != "ok" {
				return reply.Unexpected()
			}
			n := 0
			err = reply.Scan(&n)
			counted.Add(int64(n))
			return err
		})
	}
	err := group.Wait()
	return int(counted.Load()), err
}

// takes reports whether an operation belongs on the page.
func (p DoubtPage) takes(o Operation) bool {
	return o.State == InDoubt && (strings.HasPrefix(o.Name, p.Prefix) || strings.HasPrefix(o.Route, p.Prefix))
}

// operations returns the operations of entries. Expired ones are removed from the list, at the next
// look if the store takes no writes now.
func (t *Tokens) operations(ctx context.Context, entries []*entry) ([]Operation, error) {
	found := make([]Operation, len(entries))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, entry := range entries {
		group.Go(func() (err error) {
			found[i], err = t.Operation(ctx, entry.operation)
			if errors.Is(err, ErrUnknownToken) {
				_, _ = t.store.WithAck(0).Run(ctx, scripts.TokenRelease, t.keysOf(entry.operation), noOwner, t.done)
				return nil
			}
			return err
		})
	}
	return found, group.Wait()
}

// noOwner has no claim. A release by it only takes an operation without a record off the list.
const noOwner = "-"

// atOnce is how many scripts a listing has under way.
const atOnce = 256

// entry is one operation on the list of those under way, past the end of its lease. Lists hold
// pointers: the code that sorts a type of its own is 8 KB.
type entry struct {
	ended     int64 // milliseconds since 1970 by the Redis server
	operation string
}

func (e *entry) compare(other *entry) int {
	if e.ended != other.ended {
		return int(min(max(e.ended-other.ended, -1), 1))
	}
	return strings.Compare(e.operation, other.operation)
}

// entries reads what follows an entry, of all slots, the oldest first.
func (t *Tokens) entries(ctx context.Context, after entry, n int) ([]*entry, error) {
	keys := t.store.SlotKeys("operations", underWay)
	found := make([][]*entry, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, key := range keys {
		group.Go(func() (err error) {
			found[i], err = t.entriesOf(ctx, key, after, n)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, (*entry).compare)
	return all[:min(n, len(all))], nil
}

func (t *Tokens) entriesOf(ctx context.Context, key string, after entry, n int) ([]*entry, error) {
	reply, err := t.store.Run(ctx, scripts.OperationList, []string{key}, after.ended, after.operation, n)
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	if reply.Word() != "ok" || len(reply.Values())%2 != 0 {
		return nil, reply.Unexpected()
	}
	var found []*entry
	for pair := range slices.Chunk(reply.Values(), 2) {
		ended, err := strconv.ParseInt(pair[1], 10, 64)
		if err != nil {
			return nil, reply.Unexpected()
		}
		found = append(found, &entry{ended, pair[0]})
	}
	return found, nil
}

// ErrCursor refuses a cursor that no page gave.
var ErrCursor = fault.Refusal("idempotency: the cursor is not one that a page of this list gave")

func (e *entry) cursor() string { return strconv.FormatInt(e.ended, 10) + "." + e.operation }

func parseCursor(text string) (entry, error) {
	if text == "" {
		return entry{}, nil
	}
	number, operation, _ := strings.Cut(text, ".")
	ended, err := strconv.ParseInt(number, 10, 64)
	if err != nil || ended < 0 || !names.Digested.MatchString(operation) {
		return entry{}, ErrCursor
	}
	return entry{ended, operation}, nil
}

func inDoubt(reply scripts.Reply, operation string) error {
	doubt := &InDoubtError{Operation: operation}
	var decision string
	if err := reply.Scan(&doubt.Since, &decision); err != nil {
		return err
	}
	doubt.Refused = decision == string(Refuse)
	return doubt
}

// shownRoute is a route as operators see it. One from a client's path may be long.
func shownRoute(route string) string { return route[:min(len(route), 200)] }

var requestForm = names.NewForm("!-~", 1, 128)

// shownRequest is a request's id as operators see it.
func shownRequest(id string) string {
	if requestForm.MatchString(id) {
		return id
	}
	return ""
}
