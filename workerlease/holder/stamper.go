package holder

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/snowflake"
)

// Stamper stamps Snowflake ids with the worker id that a holder holds. An id's layout and epoch are
// those of its own lease: a pool that was lost, and begins anew with another layout, gets another
// generator. It is safe for concurrent use.
//
// The holder is the stamper's own: a generator that is made beside it repeats its ids.
type Stamper struct {
	holder *Holder
	config snowflake.Config

	current atomic.Pointer[snowflake.Generator] // nil until the first id
	mu      step.Mutex                          // guards changes of current, and closed
	closed  bool
}

// NewStamper stamps with the worker ids of a holder, until Close. Nothing else may stamp with them.
func NewStamper(holder *Holder, config snowflake.Config) *Stamper {
	return &Stamper{holder: holder, config: config}
}

// Next stamps an id. It waits and fails as [snowflake.Generator.Next] does, but for the pool's
// layout: the next lease's may be another.
func (s *Stamper) Next(ctx context.Context) (snowflake.ID, error) {
	if g := s.current.Load(); g != nil {
		id, err := g.Next(ctx)
		if !isOver(err) {
			return id, err
		}
	}
	step.At("holder: the generator is over")
	var ids [1]snowflake.ID
	err := s.Fill(ctx, ids[:])
	return ids[0], err
}

// isOver reports whether an error means that another generator has replaced this one.
func isOver(err error) bool {
	return errors.Is(err, snowflake.ErrReshaped) || errors.Is(err, snowflake.ErrStopped)
}

// Fill stamps as many ids as there is room for, in rising order and all of one layout and epoch.
// After an error none of them counts. It waits and fails as Next does.
func (s *Stamper) Fill(ctx context.Context, ids []snowflake.ID) error {
	for g := s.current.Load(); ; {
		if g != nil {
			if err := g.Fill(ctx, ids); !isOver(err) {
				return err
			}
		}
		var err error
		if g, err = s.Generator(); err != nil {
			return err
		}
		step.At("holder: has a generator")
	}
}

// Generator returns the generator for the current lease. After another replaces it, its calls fail
// with snowflake.ErrStopped, or snowflake.ErrReshaped. The errors: snowflake.ErrNoLease with the
// holder's own; snowflake.ErrStopped after Close.
func (s *Stamper) Generator() (*snowflake.Generator, error) {
	// The lease is read under the mutex: a caller with an older one would replace the newer
	// generator, and then there would be two for one grant, which repeat each other's ids.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, snowflake.ErrStopped
	}
	lease, err := s.holder.Lease()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", snowflake.ErrNoLease, err)
	}
	old := s.current.Load()
	if old != nil {
		layout, epoch, known := old.Layout()
		if !known || layout == lease.Layout && epoch.Equal(lease.Epoch) {
			return old, nil
		}
		old.Stop()
	}
	g, err := snowflake.New(s.holder, s.config)
	if err != nil {
		return nil, err
	}
	s.current.Store(g)
	step.At("holder: made a generator")
	return g, nil
}

// Layout returns the layout and the epoch of the ids stamped last; ok is false if none were.
func (s *Stamper) Layout() (layout snowflake.Layout, epoch time.Time, ok bool) {
	g := s.current.Load()
	if g == nil {
		return layout, epoch, false
	}
	return g.Layout()
}

// Current is the lease that is held now. The error wraps ErrNone, and the reason.
func (s *Stamper) Current() (Lease, error) { return s.holder.Current() }

// Context ends when the lease that is held now does, with the reason as its cause.
func (s *Stamper) Context() context.Context { return s.holder.Context() }

// Done is closed when the stamper has no lease any more and will have none: see [Holder.Done].
func (s *Stamper) Done() <-chan struct{} { return s.holder.Done() }

// Stop ends the stamping. Once it has returned, every call fails with snowflake.ErrStopped. It
// returns the end of the last timestamp that was stamped with the lease that is held, the zero time
// if none was. The lease stays; Close gives it back as well.
func (s *Stamper) Stop() (usedUntil time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if g := s.current.Load(); g != nil {
		return g.Stop()
	}
	return time.Time{}
}

// Close ends the stamping and gives the lease back, for a window that begins after the last
// timestamp that was stamped. The request may go on for two seconds after the context has ended.
// After an error the lease ends with its window. Closing again does nothing.
func (s *Stamper) Close(ctx context.Context) error {
	used := s.Stop()
	step.At("holder: nothing is stamped any more")
	if used.IsZero() { // nothing was stamped with the lease
		used = s.holder.begun()
	}
	return s.holder.Release(ctx, used)
}
