package segment

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/coatcheck/coatcheck/internal/fault"
)

// ErrFloor is the refusal of [Restripe] if it cannot know from which id on the new stores may hand
// out: one of the old ones is gone and no start was given. Nothing was opened.
var ErrFloor = fault.Refusal("segment: the new stores have no start")

// Restriping is the task of [Restripe].
type Restriping struct {
	Tag string
	// From are the stores that the tag has now, by index; none for a new tag. A nil stands for one
	// that is gone for good: see Start.
	From []*LeafAlloc
	// To are the stores that it will have, by index: any of the old ones and others, in any order.
	To []*LeafAlloc
	// Start is the least id that the new stores may hand out. It is needed only if one of the old
	// ones is gone: then it must be above all that one can have given.
	Start int64
	Step  int64 // of the tag's rows in the new stores; see LeafAlloc.Seed
}

// Restripe moves a tag from the stores of one [Striped] to those of another: more of them, fewer,
// others, or a first time. Processes that use the old stores may go on while it runs. It first
// retires the tag in each old store, which ends what that hands out to them; only when all are
// retired is it known which ids may have been handed out; then it opens the tag in each new store,
// above all of those. So between the first and the last no ids are handed out, and afterwards only
// to processes that know the new stores.
//
// If it fails it can be repeated, and must be, until it returns no error: it goes on where it was.
// It needs every old store to answer, but for those that are nil. It returns the floor: all ids
// that are handed out from now on are at or above it.
func Restripe(ctx context.Context, r Restriping) (floor int64, err error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	floor, err = r.retire(ctx)
	if err != nil {
		return 0, err
	}
	m := int64(len(r.To))
	least := floor / m
	if floor%m > 0 {
		least++
	}
	for j, store := range r.To {
		name := StripeTag(r.Tag, j, len(r.To))
		if err := store.Open(ctx, name, least, r.Step, fmt.Sprintf("stripe %d of %d of %s", j, m, r.Tag)); err != nil {
			return 0, fmt.Errorf("open stripe %d of %d: %w", j, m, err)
		}
	}
	return floor, nil
}

func (r Restriping) check() error {
	if len(r.To) < 1 || len(r.To) > MaxStripes || len(r.From) > MaxStripes {
		return fmt.Errorf("%w: from %d stores to %d: 1 to %d", ErrRequest, len(r.From), len(r.To), MaxStripes)
	}
	if r.Tag == "" {
		return fmt.Errorf("%w: there is no tag", ErrRequest)
	}
	for j, store := range r.To {
		if store == nil {
			return fmt.Errorf("%w: the new stripe %d has no store", ErrRequest, j)
		}
	}
	return checkSeed(StripeTag(r.Tag, len(r.To)-1, len(r.To)), r.Start, r.Step, "")
}

// retire ends the tag in all old stores, and returns an id above all that they have handed out.
func (r Restriping) retire(ctx context.Context) (floor int64, err error) {
	n := int64(len(r.From))
	floor = r.Start
	var faults []error
	for i, store := range r.From {
		if store == nil {
			if r.Start == 0 {
				faults = append(faults, fmt.Errorf("%w: stripe %d of %d is gone", ErrFloor, i, n))
			}
			continue
		}
		most, err := store.Retire(ctx, StripeTag(r.Tag, i, len(r.From)))
		if err == nil && most > math.MaxInt64/n {
			err = ErrExhausted
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("retire stripe %d of %d: %w", i, n, err))
			continue
		}
		floor = max(floor, most*n) // its ids are v·n + i of v below most
	}
	return floor, errors.Join(faults...)
}
