package holder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/internal/keepalive"
	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/snowflake"
)

// The errors of a holder, and the causes with which its context ends.
var (
	// ErrNone is the error of a holder that has no lease now.
	ErrNone = errors.New("no lease is held")
	// ErrLate is the error of a grant whose window had ended, or nearly so, when its reply came.
	ErrLate = errors.New("the grant came too late to be used")
	// ErrLayout is for a lease in a layout that this program cannot stamp. It was given back.
	ErrLayout = errors.New("the pool's layout is not one that this program can stamp")
	// ErrDeadline is the cause when no renewal was confirmed before the lease could end.
	ErrDeadline = keepalive.ErrDeadline
	// ErrReleased is the cause when the holder gave the lease back.
	ErrReleased = keepalive.ErrReleased
)

// Options are the options of a holder. The zero value of each field means the default beside it.
type Options struct {
	// Wait is how long to wait for a worker id at most, while the pool is exhausted, quarantined or
	// cannot be reached; 0 = as long as the context allows, less than 0 = it asks once. Other
	// refusals, such as of an API key, are told at once. A holder that is started without a wait
	// for its lease asks for as long as its context lives.
	Wait time.Duration
	// Once ends the holding for good when the worker id is lost. Without it another one is leased,
	// until Release.
	Once bool
	// Margin is how long before the lease can end it counts as ended, half of its TTL at most; 0 =
	// a tenth of its TTL, a second at most.
	Margin time.Duration
	// Strict ends the lease for good when wall time runs ahead, as it does while the machine
	// sleeps. Without it a renewal may show that the lease is still there.
	Strict bool
	// Observe is called for each event, one at a time, by the goroutine that causes it: it must
	// return soon, and not call Release. nil = not called.
	Observe func(Event)
	// Wall is the wall clock; nil = the machine's.
	Wall func() time.Time
}

// Holder holds a worker id of a pool, one after the other without [Options].Once. It is safe for
// concurrent use. It implements snowflake.Worker.
type Holder struct {
	leaser  leaser
	options Options
	ctx     context.Context
	stop    context.CancelCauseFunc
	done    chan struct{} // closed when the holder's goroutine has ended
	hurry   chan struct{} // has one element when a wait is to end, see AskNow

	mu    sync.Mutex
	term  *term // the lease that is held now; nil = none
	last  *term // the one that was held last, for Release; nil = none, or it is known to be gone
	cause error // why none is held
}

// term is one lease while it is held.
type term struct {
	keeper *keepalive.Keeper
	layout snowflake.Layout // the lease's, read
	held   chan struct{}    // closed when it is the holder's

	mu    sync.Mutex
	lease Lease
	clock anchor
	peak  time.Time // the latest that the clock had come to whenever it was moved
}

func (t *term) read() (Lease, anchor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lease, t.clock
}

// start begins to hold and returns at once: the first grant is asked for until it is there, until
// Release, until the context ends, or until the leaser says that asking again does not help.
func start(ctx context.Context, from leaser, options Options) *Holder {
	h := newHolder(ctx, from, options)
	go h.run(nil)
	return h
}

// hold acquires a lease and holds it until Release, its loss, or the end of the context. The error
// is the leaser's, and also the context's cause if that ended the wait.
func hold(ctx context.Context, from leaser, options Options) (*Holder, error) {
	h := newHolder(ctx, from, options)
	first, err := h.acquire(cmp.Or(options.Wait, forever), true)
	if err != nil {
		h.stop(err)
		return nil, err
	}
	h.take(first)
	go h.run(first)
	return h, nil
}

func newHolder(ctx context.Context, from leaser, options Options) *Holder {
	if options.Observe == nil {
		options.Observe = func(Event) {}
	}
	if options.Wall == nil {
		options.Wall = func() time.Time { return time.Now().Round(0) }
	}
	options.Observe = oneAtATime(options.Observe)
	h := &Holder{leaser: from, options: options, done: make(chan struct{}), hurry: make(chan struct{}, 1), cause: ErrNone}
	h.ctx, h.stop = context.WithCancelCause(ctx)
	return h
}

func oneAtATime(observe func(Event)) func(Event) {
	var mu sync.Mutex
	return func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		observe(e)
	}
}

// Lease returns what may be stamped now. The error wraps ErrNone, and the reason: none was granted
// yet, it was lost, or it cannot be counted on at the moment.
func (h *Holder) Lease() (snowflake.Lease, error) {
	t, lease, clock, err := h.now()
	if err != nil {
		return snowflake.Lease{}, err
	}
	return snowflake.Lease{
		Layout: t.layout, Epoch: lease.Epoch,
		Worker: lease.WorkerID, Datacenter: lease.Datacenter, Fence: lease.Fence, NotBefore: lease.NotBefore, NotAfter: lease.NotAfter,
		Time: clock.time, At: clock.at,
	}, nil
}

// Current is the lease that is held now. The error is that of Lease.
func (h *Holder) Current() (Lease, error) {
	_, lease, _, err := h.now()
	return lease, err
}

func (h *Holder) now() (*term, Lease, anchor, error) {
	h.mu.Lock()
	t, cause := h.term, h.cause
	h.mu.Unlock()
	if t == nil {
		return nil, Lease{}, anchor{}, none(cause)
	}
	step.At("holder: has the term")
	lease, clock := t.read()
	step.At("holder: read the lease")
	if t.keeper.Valid() > 0 {
		return t, lease, clock, nil
	}
	if cause = context.Cause(t.keeper.Context()); cause == nil {
		cause = keepalive.ErrDeadline // for now: a renewal may say otherwise
	}
	return nil, Lease{}, anchor{}, none(cause)
}

func none(cause error) error {
	if errors.Is(cause, ErrNone) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrNone, cause)
}

// Context ends when the lease that is held now does, with the reason as its cause; where none is
// held it has ended.
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

// Done is closed when the holder holds nothing any more and will not: after Release, the end of its
// context, a final refusal, or a loss with Once.
func (h *Holder) Done() <-chan struct{} { return h.done }

// Err is the reason why no lease is held; nil while one is.
func (h *Holder) Err() error {
	_, err := h.Lease()
	return err
}

// Release stops holding and gives the lease back, if there is one. usedUntil is the end of the last
// timestamp that was stamped, as snowflake.Generator.Stop returns it; the zero time if that is not
// known; then it is the lease's clock now, and unsaid more. The request may go on for two seconds
// after the context has ended; the holding has stopped in any case. The error is the leaser's; the
// lease then ends with its window. Releasing again does nothing.
func (h *Holder) Release(ctx context.Context, usedUntil time.Time) error {
	h.stop(keepalive.ErrReleased)
	<-h.done
	step.At("holder: has ended")
	h.mu.Lock()
	last := h.last
	h.last = nil
	h.mu.Unlock()
	if last == nil {
		return nil
	}
	lease, clock := last.read()
	if usedUntil.IsZero() {
		usedUntil = clock.read(time.Now()).Add(unsaid)
		if late := last.peak.Add(unsaid); late.After(usedUntil) {
			usedUntil = late
		}
	}
	ctx, cancel := keepalive.Linger(ctx, keepalive.Parting)
	defer cancel()
	err := h.leaser.Release(ctx, lease, usedUntil)
	h.options.Observe(Event{Kind: KindReleased, Pool: lease.Pool, WorkerID: lease.WorkerID, Err: err})
	return err
}

// begun is the start of the last lease's window; the zero time if there is none to give back.
func (h *Holder) begun() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == nil {
		return time.Time{}
	}
	lease, _ := h.last.read()
	return lease.NotBefore
}

// unsaid is how far ahead of the lease's clock the end of a timestamp may be: the longest unit of a
// timestamp, and more than the lead of any sane generator.
const unsaid = 2 * time.Second

// run holds lease after lease, beginning with t if that is not nil.
func (h *Holder) run(t *term) {
	defer close(h.done)
	for {
		if t == nil {
			var err error
			if t, err = h.acquire(forever, false); err != nil {
				h.lose(err)
				return
			}
			h.take(t)
		}
		<-t.keeper.Context().Done()
		cause := context.Cause(t.keeper.Context())
		step.At("holder: the lease ended")
		t.keeper.Stop()
		h.lose(cause)
		if h.ctx.Err() != nil {
			return
		}
		lease, _ := t.read()
		h.options.Observe(Event{Kind: KindLost, Pool: lease.Pool, WorkerID: lease.WorkerID, Err: cause})
		if h.options.Once {
			return
		}
		t = nil
	}
}

func (h *Holder) take(t *term) {
	h.mu.Lock()
	h.term, h.last, h.cause = t, t, nil
	h.mu.Unlock()
	step.At("holder: took a grant")
	lease, _ := t.read()
	h.options.Observe(Event{Kind: KindGranted, Pool: lease.Pool, WorkerID: lease.WorkerID})
	close(t.held)
}

// lose notes that no lease is held. The last one stays for Release unless it is known to be gone.
func (h *Holder) lose(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if errors.Is(cause, keepalive.ErrLost) {
		h.last = nil
	}
	h.term, h.cause = nil, cause
}
