package snowflake

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
)

// MaxLead is how far an id's timestamp may be ahead of the lease's clock. It is what a burst may
// borrow from the next units when a sequence is full.
const MaxLead = 5 * time.Millisecond

// Config sets up a generator. The zero value is a good one. What the ids look like is not in it:
// layout and epoch are the lease's.
type Config struct {
	// Spread lets the sequence of a unit start at a random number from the lower half of the
	// sequence, instead of 0. Without it a generator that makes less than one id in a unit makes
	// only ids whose low bits are 0, which all land on one shard where shards are chosen by the
	// id's remainder. The price: of a unit that starts fresh up to half of the sequence is left
	// out. A full one still runs on into the next, so that a busy generator is no slower.
	Spread bool
}

// Generator stamps ids. It is safe for concurrent use. Two generators on one Worker are a mistake:
// each believes that the window is its own, and they repeat each other's ids.
//
// Stop ends it. Without Stop nothing leaks: what runs beside a busy generator, one goroutine, ends
// by itself within a second after calls have become rare.
type Generator struct {
	// current is the positions that ids are drawn from, and their worker id. A call loads it once.
	current atomic.Pointer[positions]
	// until when the last reading of the clock is good enough, counted from born
	fresh atomic.Int64
	born  time.Time

	worker Worker
	config Config
	stop   chan struct{} // closed by Stop
	ticker sync.WaitGroup

	mu      step.Mutex // guards what follows, and changes of current
	stopped bool
	layout  Layout    // of the first lease; zero = there was none yet
	epoch   time.Time // likewise
	lease   answer
	window  window
	clock   clock
	heat    heat
	opened  bool  // there has been a grant
	floor   int64 // where the positions of the current grant begin at the earliest
	drawn   int64 // the end of what was drawn, without what was skipped after it
	clean   int64 // the next position if nothing was drawn since it was set; -1 = not known
	used    int64 // the last position that may have been stamped with the current grant; -1 = none
	// the first position that was never allowed: the clock as far as it was ever read, and the lead
	high  int64
	given int // tickets beyond the limit that their callers gave up
}

// New makes a generator. It asks the worker for nothing yet: the first id takes layout and epoch
// from the lease of that moment, as do all others. The error is that of a nil worker.
func New(worker Worker, config Config) (*Generator, error) {
	if worker == nil {
		return nil, errors.New("snowflake: a generator needs a Worker")
	}
	g := &Generator{worker: worker, config: config, stop: make(chan struct{}), used: -1, clean: -1, born: time.Now()}
	g.current.Store(&positions{})
	return g, nil
}

// Next stamps an id. It waits for the next unit where a sequence and its lead are used up, and for
// the window where that begins later; ctx ends the wait. ctx is checked only if there is a wait.
//
// The errors: a *WindowEndedError; ErrNoLease with the Worker's own; ErrMisfit; ErrReshaped;
// ErrStopped; ErrBeforeEpoch; ErrLayoutUsedUp; the context's cause.
func (g *Generator) Next(ctx context.Context) (ID, error) {
	p := g.current.Load()
	n := p.next.Add(1) - 1
	step.At("snowflake: drew one")
	// The limit is read after the position was drawn: a goroutine that lowers the limit and then
	// reads what was drawn has seen all that can still be stamped.
	if n < p.limit.Load() && n&sample != 0 {
		return p.id(n), nil
	}
	return g.slowly(ctx, p, n)
}

// sample picks the positions whose draw reads the clock: the ticker may be late.
const sample = 255

func (g *Generator) slowly(ctx context.Context, p *positions, n int64) (ID, error) {
	t := ticket{p, n, 1, g.config.Spread}
	if _, err := g.redeem(ctx, &t); err != nil {
		return 0, err
	}
	return t.id(t.first), nil
}

// Fill stamps as many ids as there is room for, in rising order. After an error none of them
// counts. It waits and fails as Next does; without room only for a generator that was stopped.
func (g *Generator) Fill(ctx context.Context, ids []ID) error {
	return g.fill(ctx, ids, g.config.Spread)
}

// FillFromZero is Fill without Config.Spread: of a unit in which nothing was stamped yet it takes
// the smallest sequences.
func (g *Generator) FillFromZero(ctx context.Context, ids []ID) error {
	return g.fill(ctx, ids, false)
}

func (g *Generator) fill(ctx context.Context, ids []ID, spread bool) error {
	if len(ids) == 0 {
		return g.ended()
	}
	for len(ids) > 0 {
		p := g.current.Load()
		k := int64(min(len(ids), batch))
		t := ticket{p, p.next.Add(k) - k, k, spread}
		step.At("snowflake: drew several")
		if t.first+k > p.limit.Load() || !g.isFresh() {
			if err := g.fillSlowly(ctx, ids[:k], t); err != nil {
				return err
			}
		} else {
			t.write(ids[:k])
		}
		ids = ids[k:]
	}
	return nil
}

func (g *Generator) ended() error {
	select {
	case <-g.stop:
		return ErrStopped
	default:
		return nil
	}
}

// batch is how many positions Fill draws at once.
const batch = 256

func (g *Generator) fillSlowly(ctx context.Context, ids []ID, t ticket) error {
	for len(ids) > 0 {
		count, err := g.redeem(ctx, &t)
		if err != nil {
			return err
		}
		t.write(ids[:count])
		ids = ids[count:]
		t.first, t.count = t.first+count, t.count-count
	}
	return nil
}

// Fill stamps n ids, in rising order. It waits and fails as Next does.
func (g *Generator) NextN(ctx context.Context, n int) ([]ID, error) {
	if n < 0 {
		return nil, fmt.Errorf("%w: %d ids", ErrRange, n)
	}
	ids := make([]ID, n)
	if err := g.Fill(ctx, ids); err != nil {
		return nil, err
	}
	return ids, nil
}

// All yields ids, each stamped when asked for, until the consumer breaks off or a last error.
func (g *Generator) All(ctx context.Context) iter.Seq2[ID, error] {
	return func(yield func(ID, error) bool) {
		for {
			id, err := g.Next(ctx)
			if !yield(id, err) || err != nil {
				return
			}
		}
	}
}

// Stop ends the generator. Once it has returned nothing is stamped any more: every call fails with
// ErrStopped, and so do those that wait. It returns what UsedUntil does, so that a release can
// shorten the window to that. Repeating it is harmless.
func (g *Generator) Stop() (usedUntil time.Time) {
	g.mu.Lock()
	if !g.stopped {
		g.stopped = true
		g.cool()
		close(g.stop)
	}
	usedUntil = g.usedUntil()
	g.mu.Unlock()
	step.At("snowflake: stopped")
	g.ticker.Wait()
	return usedUntil
}

// UsedUntil is the end of the last unit that was stamped with the current grant, or the zero time
// if none was. With many calls it can be later by MaxLead and a unit; it is never earlier.
func (g *Generator) UsedUntil() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.current.Load()
	g.note(p, p.limit.Load())
	return g.usedUntil()
}

func (g *Generator) usedUntil() time.Time {
	if g.used < 0 {
		return time.Time{}
	}
	return g.layout.start(g.epoch, g.used>>g.layout.Sequence+1)
}

// Layout returns the layout and epoch of the generator's first lease; ok is false without one.
func (g *Generator) Layout() (layout Layout, epoch time.Time, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.layout, g.epoch, g.layout != Layout{}
}
