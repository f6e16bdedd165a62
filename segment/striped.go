package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// MaxStripes is how many stores a [Striped] can have.
const MaxStripes = 1024

// DefaultStripeTimeout is the default of [StripedConfig].Timeout.
const DefaultStripeTimeout = time.Second

// StripedConfig is how a [Striped] treats stores that are away. The zero value means the defaults.
type StripedConfig struct {
	// of one store, within its share of the remaining time: 10ms to 10m; 0 = DefaultStripeTimeout
	Timeout time.Duration
	Logger  *slog.Logger // logs when a store goes and when it comes back; nil = no log
}

func (c StripedConfig) withDefaults() StripedConfig {
	c.Timeout = cmp.Or(c.Timeout, DefaultStripeTimeout)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Check returns all faults of a StripedConfig.
func (c StripedConfig) Check() error {
	return inRange("stripe timeout", c.withDefaults().Timeout, 10*time.Millisecond, 10*time.Minute)
}

// Striped is a [Source] made of n independent stores: store i hands out the ids that leave i when
// divided by n, so no two stores have one in common, and one that is down stops nothing. Ids of
// different stores interleave and come in no order: those of a store that was away for long are
// smaller than the others'.
//
// Stores are asked in turn, so that they advance alike. After one that refuses, or whose answer is
// unknown, the next is asked at once: whatever the unknown one has given is a gap. One that is away
// is passed over for a while, up to half a minute, and asked in that time only if no other answers.
//
// Every process must have the same store under the same index, and the same n. To check it each
// store keeps the tag under [StripeTag], which holds both: where they do not fit there is no such
// tag, and the store refuses. So a store must not make up tags that it is asked for. [Restripe]
// changes the stores and their number.
//
// It is safe for concurrent use.
type Striped struct {
	n      int64
	config StripedConfig
	stores []*stripeStore

	mu sync.Mutex
	// by tag: which of the stores is the next to be asked; only tags that a store knows
	turns map[string]int
}

var _ Source = (*Striped)(nil)

// StripeTag is the name under which store i of n keeps a tag.
func StripeTag(tag string, i, n int) string { return fmt.Sprintf("%s@%dof%d", tag, i, n) }

// NewStriped puts stores together. The map gives each its index, 0 to n − 1. Not all n need to be
// there: a process may know only those that are near to it.
func NewStriped(stores map[int]Source, n int, config StripedConfig) (*Striped, error) {
	faults := []error{config.Check()}
	if n < 1 || n > MaxStripes {
		faults = append(faults, fmt.Errorf("segment: %d stripes: 1 to %d", n, MaxStripes))
	}
	if len(stores) == 0 {
		faults = append(faults, errors.New("segment: a striped source without a store"))
	}
	s := &Striped{n: int64(n), config: config.withDefaults(), turns: map[string]int{}}
	for _, i := range slices.Sorted(maps.Keys(stores)) {
		if i < 0 || i >= n {
			faults = append(faults, fmt.Errorf("segment: stripe %d: 0 to %d", i, n-1))
		}
		if stores[i] == nil {
			faults = append(faults, fmt.Errorf("segment: stripe %d has no store", i))
		}
		s.stores = append(s.stores, &stripeStore{source: stores[i], index: int64(i), stats: StripeStats{Index: i}})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s, nil
}

// Take takes a range of the first store that gives one. Its Delta is n times the store's.
//
// The error is one of a store's: an unknown outcome before a store that is away, that before
// another refusal, and [ErrExhausted] and [ErrUnknownTag] only if all asked stores return it. Its
// text has the answer of each store.
func (s *Striped) Take(ctx context.Context, tag string, step int64) (Range, error) {
	order, up := s.order(tag)
	var faults stripesError
	for i, store := range order {
		if err := ctx.Err(); err != nil {
			return Range{}, append(faults, stripeFault{store.index, unavailable(err)})
		}
		if i >= up && faults.answered() {
			faults = append(faults, stripeFault{store.index, unavailable(errPassedOver)})
			continue
		}
		taken, err := s.takeFrom(ctx, store, tag, step, len(order)-i)
		if err == nil {
			s.took(tag, store)
			return taken, nil
		}
		faults = append(faults, stripeFault{store.index, err})
	}
	return Range{}, faults
}

// order is the stores in the order to ask: in turn, those that are down last; up counts the others.
func (s *Striped) order(tag string) (order []*stripeStore, up int) {
	s.mu.Lock()
	turn, known := s.turns[tag]
	s.mu.Unlock()
	if !known { // processes that start together do not all begin with the same store
		turn = rand.IntN(len(s.stores)) //nolint:gosec // guessing it gains nothing
	}
	now := time.Now()
	var down []*stripeStore
	for _, store := range slices.Concat(s.stores[turn:], s.stores[:turn]) {
		if store.downFor(now) > 0 {
			down = append(down, store)
		} else {
			order = append(order, store)
		}
	}
	slices.SortStableFunc(down, func(a, b *stripeStore) int { return cmp.Compare(a.downFor(now), b.downFor(now)) })
	return append(order, down...), len(order)
}

// took makes the next call for a tag begin after the store that has given.
func (s *Striped) took(tag string, store *stripeStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns[tag] = (slices.Index(s.stores, store) + 1) % len(s.stores)
}

// takeFrom asks one store, which may use its share of the remaining time for that many stores.
func (s *Striped) takeFrom(ctx context.Context, store *stripeStore, tag string, step int64, left int) (Range, error) {
	limit := s.config.Timeout
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/time.Duration(left))
	}
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	taken, err := store.source.Take(one, StripeTag(tag, int(store.index), int(s.n)), step)
	if err == nil {
		taken, err = interleaved(taken, store.index, s.n)
	}
	store.note(err, ctx.Err(), s.config.Logger)
	return taken, err
}

// interleaved is a store's range in the numbers of all: v becomes v·n + i.
func interleaved(taken Range, i, n int64) (Range, error) {
	delta := cmp.Or(taken.Delta, 1)
	if taken.Lo < 0 || taken.Hi <= taken.Lo || delta < 0 {
		return Range{}, fmt.Errorf("%w: %d to %d, every %d", ErrBadRange, taken.Lo, taken.Hi, delta)
	}
	last := taken.Hi - 1 - (taken.Hi-1-taken.Lo)%delta
	if last > (math.MaxInt64-1-i)/n {
		return Range{}, ErrExhausted
	}
	if last == taken.Lo {
		// a range of one id may have any distance, and this one times n does not overflow
		delta = 1
	}
	return Range{Lo: taken.Lo*n + i, Hi: last*n + i + 1, Delta: delta * n, Step: taken.Step, Valid: taken.Valid}, nil
}

// Stats returns the statistics of each store's calls, in the order of their indices.
func (s *Striped) Stats() []StripeStats {
	now := time.Now()
	stats := make([]StripeStats, 0, len(s.stores))
	for _, store := range s.stores {
		down := store.downFor(now) > 0
		store.mu.Lock()
		one := store.stats
		store.mu.Unlock()
		if !down {
			one.DownUntil = time.Time{}
		}
		stats = append(stats, one)
	}
	return stats
}
