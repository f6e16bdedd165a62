package holder

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/snowflake"
)

// ErrNone is the error of a holder that has no lease now.
var ErrNone = errors.New("no lease is held")

// Options say how to hold. The zero value of each field means the default beside it.
type Options struct {
	// Reacquire leases another worker id when one was lost, until Release. Without it the holder is done when its lease is.
	Reacquire bool
	// Patience is how long the first grant may take while the pool is exhausted, quarantined or can not be reached; 0 = it is asked for once.
	Patience time.Duration
	// Margin is how long before the lease can end it counts as ended; 0 = a tenth of its TTL, a second at most.
	Margin time.Duration
	// Observe is told of what happens, by the holder's goroutine: it must return soon. nil = nobody.
	Observe func(Event)
	// Wall is the wall clock; nil = the machine's.
	Wall func() time.Time
}

// Holder holds a worker id of a pool, one after the other if it reacquires. It is safe for concurrent use. It implements snowflake.Worker.
type Holder struct {
	leaser  Leaser
	options Options
	ctx     context.Context
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when the holder's goroutine has ended

	mu    sync.Mutex
	term  *term // the lease that is held now; nil = none
	last  Lease // the one that was held last, for Release
	cause error // why none is held
}

// term is the time of one lease.
type term struct {
	keeper *keepalive.Keeper
	mu     sync.Mutex
	lease  Lease
	clock  anchor
}

// Start begins to hold and returns at once: the first grant is asked for until it is there, until Release, or until the context ends.
func Start(ctx context.Context, leaser Leaser, options Options) *Holder {
	h := newHolder(ctx, leaser, options)
	go h.run(nil)
	return h
}

// Hold acquires a lease and holds it until Release, its loss, or the end of the context. The error is the leaser's.
func Hold(ctx context.Context, leaser Leaser, options Options) (*Holder, error) {
	h := newHolder(ctx, leaser, options)
	first, err := h.acquire(options.Patience)
	if err != nil {
		h.stop(err)
		return nil, err
	}
	go h.run(first)
	return h, nil
}

func newHolder(ctx context.Context, leaser Leaser, options Options) *Holder {
	if options.Observe == nil {
		options.Observe = func(Event) {}
	}
	h := &Holder{leaser: leaser, options: options, done: make(chan struct{}), cause: ErrNone}
	h.ctx, h.stop = context.WithCancelCause(ctx)
	return h
}

// Lease says what may be stamped now. The error wraps ErrNone, and the reason: none was granted yet, it was lost, or it can not be counted on at the moment.
func (h *Holder) Lease() (snowflake.Lease, error) {
	h.mu.Lock()
	t, cause := h.term, h.cause
	h.mu.Unlock()
	if t == nil {
		return snowflake.Lease{}, none(cause)
	}
	if t.keeper.Valid() <= 0 {
		return snowflake.Lease{}, none(keepalive.ErrDeadline)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return snowflake.Lease{
		Worker: t.lease.WorkerID, Datacenter: t.lease.Datacenter, Fence: t.lease.Fence, NotBefore: t.lease.NotBefore, NotAfter: t.lease.NotAfter,
		Time: t.clock.time, At: t.clock.at,
	}, nil
}

func none(cause error) error {
	if errors.Is(cause, ErrNone) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrNone, cause)
}

// Current is the lease that is held now. The error is that of Lease.
func (h *Holder) Current() (Lease, error) {
	if _, err := h.Lease(); err != nil {
		return Lease{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term == nil {
		return Lease{}, none(h.cause)
	}
	h.term.mu.Lock()
	defer h.term.mu.Unlock()
	return h.term.lease, nil
}

// Context ends when the lease that is held now does, with the reason as its cause; where none is held it has ended.
func (h *Holder) Context() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term != nil {
		return h.term.keeper.Context()
	}
	ctx, cancel := context.WithCancelCause(h.ctx)
	cancel(none(h.cause))
	return ctx
}

// Done is closed when the holder holds nothing any more and will not: after Release, the end of its context, a final refusal, or a loss without Reacquire.
func (h *Holder) Done() <-chan struct{} { return h.done }

// Err is why nothing is held; nil while a lease is.
func (h *Holder) Err() error {
	_, err := h.Lease()
	return err
}

// Release stops holding and gives the lease back, if there is one. usedUntil is the end of the last timestamp that was stamped, as snowflake.Generator.Stop returns
// it; the zero time if that is not known. The context bounds the giving back only: the holding has stopped in any case. The error is the leaser's; the
// lease then ends with its window. Releasing again does nothing.
func (h *Holder) Release(ctx context.Context, usedUntil time.Time) error {
	h.stop(keepalive.ErrReleased)
	<-h.done
	h.mu.Lock()
	last := h.last
	h.last = Lease{}
	h.mu.Unlock()
	if last.Token == "" {
		return nil
	}
	err := h.leaser.Release(ctx, last, usedUntil)
	h.options.Observe(Event{Kind: Released, Pool: last.Pool, WorkerID: last.WorkerID, Err: err})
	return err
}

// run holds lease after lease.
func (h *Holder) run(t *term) {
	defer close(h.done)
	for {
		if t == nil {
			var err error
			if t, err = h.acquire(forever); err != nil {
				h.hold(nil, err)
				return
			}
		}
		h.hold(t, nil)
		<-t.keeper.Context().Done()
		cause := context.Cause(t.keeper.Context())
		t.keeper.Stop()
		h.hold(nil, cause)
		if h.ctx.Err() != nil {
			return
		}
		h.options.Observe(Event{Kind: Lost, Pool: t.lease.Pool, WorkerID: t.lease.WorkerID, Err: cause})
		if !h.options.Reacquire {
			return
		}
		t = nil
	}
}

// hold makes a lease the one that is held. The last one is remembered for Release unless it is known to be gone.
func (h *Holder) hold(t *term, cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t != nil:
		h.last = t.lease
	case h.term != nil && !errors.Is(cause, keepalive.ErrLost):
		h.last = h.term.lease
	default:
		h.last = Lease{}
	}
	h.term, h.cause = t, cause
}
