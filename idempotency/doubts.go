package idempotency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// doubtPage asks for a page of the operations in doubt.
type doubtPage struct {
	Prefix string // beginning of the operation's name or of its route; "" = any
	Cursor string // of the page before; "" = the first page
	Max    int

	passNewer bool // what a newer version has written is left out; false = the page fails
}

// maxScanned is how many operations one page reads at most: with a prefix it may hold fewer than
// were asked for, and more may follow.
const maxScanned = 1000

// List lists up to n (1 to 1000) operations in doubt whose name or route begins with a prefix, the
// longest in doubt first, and next, where the next page begins; "" is the first page, and the next
// one of the last. Its cost grows with the page, not with the tokens that there are: it looks at
// the list at most twice, in a cluster in every slot, and reads up to 1000 operations, so that a
// page may have fewer than n although there is a next one. An operation whose doubt ends meanwhile
// may be missing. ErrCursor: after is no next of a page.
func (t *Tokens) List(ctx context.Context, prefix, after string, n int) (page []Operation, next string, err error) {
	if n < 1 || n > maxScanned {
		return nil, "", fmt.Errorf("idempotency: n %d: 1 to %d", n, maxScanned)
	}
	return t.inDoubt(ctx, doubtPage{Prefix: prefix, Cursor: after, Max: n})
}

func (t *Tokens) inDoubt(ctx context.Context, page doubtPage) (list []Operation, next string, err error) {
	after, err := parseCursor(page.Cursor)
	if err != nil {
		return nil, "", err
	}
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
			found, err := t.operations(ctx, some, page.passNewer)
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
	page := doubtPage{Max: oldest}
	for len(found.Oldest) < oldest {
		list, next, err := t.inDoubt(ctx, page)
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
	keys := onstore.SlotKeys(t.store, "operations", underWay)
	err := pipeline.Together(ctx, len(keys), func(ctx context.Context, i int) error {
		reply, err := onstore.Run(ctx, t.store, scripts.OperationCount, keys[i:i+1])
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
	return int(counted.Load()), err
}

// takes reports whether an operation belongs on the page.
func (p doubtPage) takes(o Operation) bool {
	return o.State == StateInDoubt && (strings.HasPrefix(o.Name, p.Prefix) || strings.HasPrefix(o.Route, p.Prefix))
}

// operations returns the operations of entries. Expired ones are removed from the list, at the next
// look if the store takes no writes now.
func (t *Tokens) operations(ctx context.Context, entries []*entry, passNewer bool) ([]Operation, error) {
	found := make([]Operation, len(entries))
	err := pipeline.Together(ctx, len(entries), func(ctx context.Context, i int) (err error) {
		name := entries[i].operation
		found[i], err = t.Operation(ctx, name)
		if errors.Is(err, ErrUnknownToken) {
			_, _ = onstore.Run(ctx, t.store.WithAck(0), scripts.TokenRelease, t.keysOf(name), noOwner, t.done)
			return nil
		}
		if passNewer && errors.Is(err, redisstore.ErrNewer) {
			return nil
		}
		return err
	})
	return found, err
}

// noOwner has no claim. A release by it only takes an operation without a record off the list.
const noOwner = "-"

// atOnce is how many operations of a page are read before those that are too many are known.
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
	keys := onstore.SlotKeys(t.store, "operations", underWay)
	found := make([][]*entry, len(keys))
	err := pipeline.Together(ctx, len(keys), func(ctx context.Context, i int) (err error) {
		found[i], err = t.entriesOf(ctx, keys[i], after, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, (*entry).compare)
	return all[:min(n, len(all))], nil
}

func (t *Tokens) entriesOf(ctx context.Context, key string, after entry, n int) ([]*entry, error) {
	reply, err := onstore.Run(ctx, t.store, scripts.OperationList, []string{key}, after.ended, after.operation, n)
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
