package limit

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
)

// Bounds of a [Rate] and a cost.
const (
	MaxN     = 1_000_000 // also of a burst, and so of a cost
	MaxPer   = 366 * 24 * time.Hour
	MaxReset = 10 * 366 * 24 * time.Hour // until a burst is free again
)

var (
	// ErrReached is the answer of a limit that has no room for a call: nothing was taken. It comes
	// as a [*ReachedError].
	ErrReached = fault.Refusal("limit: reached")
	// ErrInvalid is a name, a rate or a cost out of its bounds.
	ErrInvalid = fault.Refusal("limit: out of range")
)

// Rate is how much may be taken.
type Rate struct {
	N     int           // so much in each span of Per, 1 to MaxN
	Per   time.Duration // 1 ms to MaxPer, in whole milliseconds
	Burst int           // so much at once, to MaxN; 0 = N
}

func (r Rate) burst() int {
	if r.Burst == 0 {
		return r.N
	}
	return r.Burst
}

// Size is how much may be in use at once: the burst.
func (r Rate) Size() int { return r.burst() }

// Whole is how long it takes until all of the burst is free again, after all of it was taken.
func (r Rate) Whole() time.Duration { return r.span(int64(r.burst())) }

// span is how long the rate takes to give so much; the longest there is if that is longer.
func (r Rate) span(n int64) time.Duration {
	long := math.Ceil(float64(n) * float64(r.Per) / float64(r.N))
	if long >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(long)
}

// Check returns what is wrong with a rate: an [ErrInvalid].
func (r Rate) Check() error {
	switch {
	case r.N < 1 || r.N > MaxN:
		return fmt.Errorf("%w: rate %d: 1 to %d", ErrInvalid, r.N, MaxN)
	case r.Per < time.Millisecond || r.Per > MaxPer:
		return fmt.Errorf("%w: per %v: 1ms to %v", ErrInvalid, r.Per, MaxPer)
	case r.Burst < 0 || r.Burst > MaxN:
		return fmt.Errorf("%w: burst %d: 1 to %d", ErrInvalid, r.Burst, MaxN)
	case r.Whole() > MaxReset:
		return fmt.Errorf("%w: burst %d: at this rate 1 to %d, which is free again within ten years", ErrInvalid, r.burst(), r.MaxBurst())
	}
	return nil
}

// MaxBurst is the largest burst that the rate gives within MaxReset.
func (r Rate) MaxBurst() int {
	return int(min(MaxN, float64(MaxReset)/float64(r.Per)*float64(r.N)))
}

// State is a limit after a call.
type State struct {
	Remaining int           // so much can be taken at once
	Reset     time.Duration // until all of the burst can be, if nothing is taken meanwhile
}

// ReachedError is an [ErrReached] with what is known.
type ReachedError struct {
	State

	Wait time.Duration // until the call fits, if nothing else is taken meanwhile
}

// Error reports what is left, and when the call fits.
func (e *ReachedError) Error() string {
	return fmt.Sprintf("%v: %d remain, and there is room in %v", ErrReached, e.Remaining, e.Wait.Round(time.Millisecond))
}

// RetryAfter returns Wait.
func (e *ReachedError) RetryAfter() time.Duration { return e.Wait }

// Unwrap returns ErrReached.
func (e *ReachedError) Unwrap() error { return ErrReached }

// Limits are the limits of one store. It is safe for concurrent use. Close it when it is no longer
// used.
type Limits struct {
	store *redisstore.Store
	kind  string // of their keys

	mu     sync.Mutex
	queues map[string][]*call // that wait, by the name that a call is under way for
	others sync.WaitGroup     // goroutines that ask for those
}

// call is one Take.
type call struct {
	rate  Rate
	cost  int64
	state State
	err   error
	done  chan struct{}
}

// Config is the configuration of [New]. The zero value is the default.
type Config struct {
	// Group keeps names apart: a name in one group is another limit than the same name in another.
	// 1 to 32 characters of a–z; "" = the group that the service and its clients use.
	Group string
}

var group = lazyregexp.New(`^[a-z]{0,32}$`)

// New returns the limits of a store. It panics without a store, and if the configuration is wrong.
func New(store *redisstore.Store, config Config) *Limits {
	if store == nil {
		panic("limit: New needs a store: see redisstore.Open")
	}
	if !group().MatchString(config.Group) {
		panic(fmt.Sprintf("limit: group %q: 1 to 32 characters of a–z", config.Group))
	}
	kind := "limit"
	if config.Group != "" {
		kind += "-" + config.Group
	}
	// no replica can make a limit more certain than a lost one is harmful
	return &Limits{store: store.WithAck(0), kind: kind, queues: map[string][]*call{}}
}

// Close waits for calls under way. Limits must not be used after it.
func (l *Limits) Close() error {
	l.others.Wait()
	return nil
}

// Take takes a cost from the limit of a name, all of it or nothing: [ErrReached] if there is no
// room for it now. A negative cost gives back what an earlier call took, no more than is in use. A
// cost of 0 takes nothing, and returns the state.
func (l *Limits) Take(ctx context.Context, name string, rate Rate, cost int) (State, error) {
	if err := check(name, rate, cost); err != nil {
		return State{}, err
	}
	c := &call{rate: rate, cost: int64(cost), done: make(chan struct{})}
	if l.join(name, c) {
		l.ask(ctx, name, []*call{c})
		l.next(name)
		return c.state, c.err
	}
	select {
	case <-c.done:
		return c.state, c.err
	case <-ctx.Done():
		return State{}, fmt.Errorf("limit: %w: given up while others' calls were under way: %w", redisstore.ErrUnknownOutcome, ctx.Err())
	}
}

func check(name string, rate Rate, cost int) error {
	if !names.Valid(name) {
		return fmt.Errorf("%w: name: %s", ErrInvalid, names.Rule)
	}
	if err := rate.Check(); err != nil {
		return err
	}
	if cost < -MaxN || cost > rate.burst() {
		return fmt.Errorf("%w: cost %d: %d to the burst, %d", ErrInvalid, cost, -MaxN, rate.burst())
	}
	return nil
}

// Reset forgets what is in use of the limit of a name.
func (l *Limits) Reset(ctx context.Context, name string) error {
	_, err := l.Take(ctx, name, Rate{N: 1, Per: time.Millisecond}, -MaxN) // no more can be in use
	return err
}

func (l *Limits) key(name string) string { return onstore.Key(l.store, l.kind, name) }
