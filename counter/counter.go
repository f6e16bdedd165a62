package counter

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Bounds of what a caller may ask for.
const (
	MaxBy  = 1_000_000
	MinTTL = 100 * time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// requestRetention is how long a repeated request gets its first value.
const requestRetention = 24 * time.Hour

// Counters are the counters of one store. It is safe for concurrent use. Close it when it is no
// longer used.
type Counters struct {
	store  *redisstore.Store
	engine *pipeline.Engine // of the store
	config Config
	log    *slog.Logger

	keys    sync.Map // *entry by key: what this process knows of it
	count   atomic.Int64
	moved   atomic.Int64
	refused refusals
	eras    sync.Map // knownEra of a slot, by its marker
	trial   atomic.Pointer[trial]

	batches sync.WaitGroup
	// of *waiter; of one Counters, since a channel must not go from one bubble of testing/synctest
	// to another
	waiters sync.Pool
	watch   watch
}

// New returns the counters of a store. It panics without a store, and if [Config.Check] returns an
// error.
func New(store *redisstore.Store, config Config) *Counters {
	if store == nil {
		panic("counter: New needs a store: see redisstore.Open")
	}
	if err := config.Check(); err != nil {
		panic(err)
	}
	config = config.withDefaults(store.Ack())
	c := &Counters{store: store, engine: pipeline.Of(store), config: config, log: config.Logger}
	c.trial.Store(newTrial())
	return c
}

// Close waits for calls under way. Counters must not be used after it.
func (c *Counters) Close() error {
	c.watch.stop()
	c.batches.Wait()
	return nil
}

// Range is the values of one call: the caller owns First to Value, both included.
type Range struct{ First, Last int64 }

// Request describes an addition. The zero value adds 1.
type Request struct {
	By int64 // how many values, 1 to MaxBy; 0 = 1
	// RequestID makes the call repeatable for a day: the same id gets the same values, and adds
	// once. "" = not repeatable.
	RequestID string
	// TTL is how long the counter lives if this call begins it: MinTTL to MaxTTL, in whole
	// milliseconds, not extended later. 0 = for ever. Whoever begins a counter decides whether it
	// ends: of a counter that is there and has no end, a call with a TTL gets ErrPermanent.
	TTL time.Duration
	// GiveEnd gives the TTL also to a counter that is there and has no end. It begins again at 1
	// when that has passed, and hands its values out again, on purpose.
	GiveEnd bool
	// Limit is the largest value that the counter may come to; beyond it nothing is added and the
	// answer is ErrLimit. It is for values that people read: with it no value below 0 is handed out
	// either. A counter that would have to move past the limit, as values may be lost, does not
	// move, and the answer is ErrBehind. 0 = none.
	Limit int64
	// AfterLoss is AfterLossStay for a counter with a limit and a TTL whose values nobody uses: it
	// goes on after a loss, and as many calls as were lost pass beyond its limit. All callers of
	// the counter have to say the same. "" = as Config.
	AfterLoss AfterLoss
}

func (r Request) check(key string) error {
	switch {
	case !names.Valid(key):
		return fmt.Errorf("%w: key: %s", ErrInvalid, names.Rule)
	case r.By < 1 || r.By > MaxBy:
		return fmt.Errorf("%w: by %d: 1 to %d", ErrInvalid, r.By, MaxBy)
	case r.TTL != 0 && (r.TTL < MinTTL || r.TTL > MaxTTL):
		return fmt.Errorf("%w: ttl %v: %v to %v", ErrInvalid, r.TTL, MinTTL, MaxTTL)
	case r.GiveEnd && r.TTL == 0:
		return fmt.Errorf("%w: GiveEnd: needs a TTL", ErrInvalid)
	case r.Limit < 0:
		return fmt.Errorf("%w: limit %d is negative", ErrInvalid, r.Limit)
	case r.AfterLoss != "" && r.AfterLoss != AfterLossStay:
		return fmt.Errorf("%w: after a loss %q: %s or nothing", ErrInvalid, r.AfterLoss, AfterLossStay)
	case r.AfterLoss == AfterLossStay && (r.Limit == 0 || r.TTL == 0):
		return fmt.Errorf("%w: after a loss %q: needs a limit and a TTL", ErrInvalid, r.AfterLoss)
	}
	return nil
}

// Incr adds 1 to a counter and returns the value that the caller now owns. A counter that was never
// used starts at 0, so its first value is 1.
func (c *Counters) Incr(ctx context.Context, key string) (int64, error) {
	got, err := c.Add(ctx, key, Request{})
	return got.Last, err
}

// IncrBy adds by, 1 to MaxBy, to a counter and returns the values that the caller now owns.
func (c *Counters) IncrBy(ctx context.Context, key string, by int64) (Range, error) {
	if by == 0 {
		by = -1 // not the default
	}
	return c.Add(ctx, key, Request{By: by})
}

// Add adds to a counter as requested and returns the values that the caller now owns.
func (c *Counters) Add(ctx context.Context, key string, request Request) (Range, error) {
	request.By = cmp.Or(request.By, 1)
	if err := request.check(key); err != nil {
		return Range{}, err
	}
	e := c.entry(key)
	if request.RequestID != "" || request.Limit > 0 || request.GiveEnd {
		return c.addOnce(ctx, e, request)
	}
	return c.add(ctx, e, request)
}

// Totals are sums since New. They only grow.
type Totals struct {
	// counters that had gone back, or may have, and were moved past all values: see
	// [AfterLossMovePast]
	Moved int64
}

// Totals are for metrics.
func (c *Counters) Totals() Totals { return Totals{c.moved.Load()} }
