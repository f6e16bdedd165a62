//go:build steps

package holder_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease/holder"
)

// watched is a granter that counts the renewals under way. Its requests and replies are points.
type watched struct {
	granter

	renewing atomic.Int64
	late     atomic.Bool // a lease was given back while it was being renewed, or after that
	losing   atomic.Bool // the next renewal is refused
}

func (w *watched) Renew(ctx context.Context, lease holder.Lease) (holder.Lease, error) {
	w.renewing.Add(1)
	defer w.renewing.Add(-1)
	w.late.Store(w.late.Load() || len(w.given()) > 0)
	step.At("granter: a renewal arrives")
	renewed, err := w.granter.Renew(ctx, lease)
	if w.losing.Load() {
		return holder.Lease{}, errGone
	}
	step.At("granter: a renewal was answered")
	return renewed, err
}

func (w *watched) Release(ctx context.Context, lease holder.Lease, used time.Time) error {
	w.late.Store(w.late.Load() || w.renewing.Load() > 0)
	step.At("granter: a release arrives")
	return w.granter.Release(ctx, lease, used)
}

// stamping is a stamper on a lease, and what it stamped.
type stamping struct {
	t       *testing.T
	granter *watched
	holder  *holder.Holder
	stamper *holder.Stamper
	ids     [4][]snowflake.ID // by caller
	callers int
	closed  atomic.Bool
	faults  [4]error
}

func newStamping(t *testing.T, options holder.Options) *stamping {
	t.Helper()
	s := &stamping{t: t, granter: &watched{}}
	h, err := holder.Hold(t.Context(), s.granter, options)
	expect.NoError(t, "holder.Hold", err)
	s.holder, s.stamper = h, holder.NewStamper(h, snowflake.Config{})
	return s
}

func (s *stamping) caller(calls int) walk.Task {
	i := s.callers
	s.callers++
	return walk.Task{Name: fmt.Sprint("caller ", i), Do: func() {
		for range calls {
			closed := s.closed.Load()
			id, err := s.stamper.Next(s.t.Context())
			if err == nil {
				s.ids[i] = append(s.ids[i], id)
			}
			if closed && !errors.Is(err, snowflake.ErrStopped) {
				s.faults[i] = fmt.Errorf("a call after Close: %d, %w, want %w", id, err, snowflake.ErrStopped)
			}
		}
	}}
}

func (s *stamping) closer() walk.Task {
	return walk.Task{Name: "closer", Do: func() {
		_ = s.stamper.Close(s.t.Context())
		s.closed.Store(true)
		if _, err := s.holder.Lease(); !errors.Is(err, holder.ErrNone) {
			s.faults[3] = fmt.Errorf("Lease after Close: %w, want %w", err, holder.ErrNone)
		}
	}}
}

// loser has the next renewal refused.
func (s *stamping) loser() walk.Task {
	return walk.Task{Name: "loser", Do: func() { s.granter.losing.Store(true) }}
}

func (s *stamping) check() error {
	layout := snowflake.MustLayout(snowflake.DefaultLayout)
	given := s.granter.given()
	distinct := map[snowflake.ID]bool{}
	for i, ids := range s.ids {
		last := snowflake.ID(0)
		for _, id := range ids {
			p := layout.Decode(id, snowflake.DefaultEpoch)
			for _, one := range given {
				if one.lease.WorkerID == p.Worker && p.Time.Add(time.Millisecond).After(one.used) {
					return fmt.Errorf("%d (%+v) was stamped, and its lease was given back as used until %v", id, p, one.used)
				}
			}
			if id <= last || distinct[id] {
				return fmt.Errorf("caller %d: %d (%+v) follows %d, or is there twice", i, id, p, last)
			}
			last, distinct[id] = id, true
		}
	}
	if s.granter.late.Load() {
		return errors.New("a lease was given back while it was renewed, or renewed after that")
	}
	return errors.Join(s.faults[:]...)
}

func (s *stamping) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: s.check, Close: func() {
		s.stamper.Stop()
		_ = s.holder.Release(context.Background(), time.Time{})
	}}
}

var scenes = map[string]walk.Scene{
	// a renewal is due after a third of the TTL, give or take a tenth
	"one renewal and one release": {Ticks: 1, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t, holder.Options{Once: true})
		return s.play(s.closer())
	}},
	"a caller, a renewal and a release": {Preemptions: 2, Ticks: 1, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t, holder.Options{Once: true})
		return s.play(s.caller(2), s.closer())
	}},
	"a loss and a release": {Preemptions: 2, Ticks: 1, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t, holder.Options{})
		return s.play(s.loser(), s.caller(1), s.closer())
	}},
	"the deadline and a release": {Preemptions: 2, Ticks: 2, Tick: 29 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t, holder.Options{})
		return s.play(s.caller(1), s.closer())
	}},
}

func TestWalkEveryOrderOfAHolder(t *testing.T) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) { walk.Every(t, scene) })
	}
}

func TestWalkRandomOrdersOfAHolder(t *testing.T) {
	walk.Rounds(t, walk.Scene{Ticks: 4, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t, holder.Options{})
		return s.play(s.caller(4), s.caller(3), s.loser(), s.closer())
	}})
}
