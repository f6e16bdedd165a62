//go:build steps

package snowflake_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/snowflake"
)

// scene is a generator, and what is stamped with it.
type scene struct {
	t     *testing.T
	desk  *desk
	g     *snowflake.Generator
	found [][]snowflake.ID // by caller
	// the windows that were granted, by worker id; those of one never overlap
	windows   map[int][]window
	stopped   atomic.Bool
	late      atomic.Bool // a call that began after Stop had returned succeeded
	usedUntil time.Time   // as Stop returned it
}

func newScene(t *testing.T, spread bool) *scene {
	t.Helper()
	s := &scene{t: t, desk: granted(1, time.Hour), windows: map[int][]window{}}
	g, err := snowflake.New(like{}.worker(s.desk), snowflake.Config{Spread: spread})
	expect.NoError(t, "snowflake.New", err)
	s.g = g
	s.record()
	return s
}

func (s *scene) record() {
	l := s.desk.lease
	s.windows[l.Worker] = append(s.windows[l.Worker], window{l.NotBefore, l.NotAfter})
}

// caller draws ids in each of some calls: 1 with Next, another number with Fill.
func (s *scene) caller(name string, calls ...int) walk.Task {
	i := len(s.found)
	s.found = append(s.found, nil)
	return walk.Task{Name: name, Do: func() {
		for _, n := range calls {
			stopped := s.stopped.Load()
			ids := make([]snowflake.ID, n)
			var err error
			if n == 1 {
				ids[0], err = s.g.Next(s.t.Context())
			} else {
				err = s.g.Fill(s.t.Context(), ids)
			}
			if err == nil {
				s.found[i] = append(s.found[i], ids...)
				if stopped {
					s.late.Store(true)
				}
			}
		}
	}}
}

// granter grants another worker id, whose window begins now.
func (s *scene) granter() walk.Task {
	return walk.Task{Name: "granter", Do: func() {
		s.desk.set(func(l *snowflake.Lease) {
			l.Fence, l.Worker = l.Fence+1, l.Worker+1
			l.NotBefore, l.NotAfter = time.Now(), time.Now().Add(time.Hour)
			s.record()
		})
	}}
}

// cut lets the window end in that time.
func (s *scene) cut(left time.Duration) {
	s.desk.set(func(l *snowflake.Lease) { l.NotAfter = time.Now().Add(left) })
	s.windows[s.desk.lease.Worker][0].to = s.desk.lease.NotAfter
}

// renewer extends the window of the grant.
func (s *scene) renewer() walk.Task {
	return walk.Task{Name: "renewer", Do: func() {
		s.desk.set(func(l *snowflake.Lease) { l.NotAfter = l.NotAfter.Add(time.Hour); s.record() })
	}}
}

func (s *scene) stopper() walk.Task {
	return walk.Task{Name: "stopper", Do: func() {
		s.usedUntil = s.g.Stop()
		s.stopped.Store(true)
	}}
}

// check returns what does not hold of the ids.
func (s *scene) check() error {
	if s.late.Load() {
		return errors.New("a call that began after Stop had returned succeeded")
	}
	var all []snowflake.ID
	for i, ids := range s.found {
		if !slices.IsSorted(ids) {
			return fmt.Errorf("the ids of caller %d do not rise: %v", i, ids)
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	for i, id := range all {
		if i > 0 && id == all[i-1] {
			return fmt.Errorf("%d (%+v) was stamped twice", id, parts(id))
		}
		p := parts(id)
		if s.stopped.Load() && p.Worker == s.desk.lease.Worker && p.Time.Add(time.Millisecond).After(s.usedUntil) {
			return fmt.Errorf("%d (%+v) was stamped with the last grant, and Stop says that it was used until %v", id, p, s.usedUntil)
		}
		if !slices.ContainsFunc(s.windows[p.Worker], func(w window) bool {
			return !p.Time.Before(w.from) && !p.Time.Add(time.Millisecond).After(w.to)
		}) {
			return fmt.Errorf("%d (%+v) lies in no window of its worker id", id, p)
		}
	}
	return nil
}

func (s *scene) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: s.check, Close: func() { s.g.Stop() }}
}

// scenes are small enough for every order, some of them with bounded preemptions.
var scenes = map[string]walk.Scene{
	"two callers on a new generator": {Ticks: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		return s.play(s.caller("caller", 1, 1), s.caller("filler", 10))
	}},
	"two callers and a grant": {Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		return s.play(s.caller("caller", 1, 1), s.caller("filler", 10), s.granter())
	}},
	"a grant while calls are many": {Preemptions: 2, Ticks: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		nextN(t, s.g, 10)
		return s.play(s.caller("caller", 1, 1), s.caller("filler", 300), s.granter())
	}},
	"a window that begins later": {Preemptions: 2, Ticks: 1, Tick: 10 * time.Millisecond, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		s.desk.lease.NotBefore = s.desk.lease.NotBefore.Add(10 * time.Millisecond)
		s.windows[1][0].from = s.desk.lease.NotBefore
		return s.play(s.caller("caller", 1, 1), s.caller("filler", 10), s.granter())
	}},
	"a renewal": {Preemptions: 2, Ticks: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		s.cut(time.Millisecond)
		nextN(t, s.g, 10)
		return s.play(s.caller("caller", 1, 3), s.caller("filler", 10, 1), s.renewer())
	}},
	"stop": {Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		return s.play(s.caller("caller", 1, 1), s.caller("filler", 0, 10), s.stopper())
	}},
	"stop while calls are many": {Preemptions: 2, Ticks: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, false)
		nextN(t, s.g, 10)
		return s.play(s.caller("caller", 1, 0, 1), s.caller("filler", 300, 10), s.stopper())
	}},
}

func TestWalkEveryOrderOfAGenerator(t *testing.T) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) { walk.Every(t, scene) })
	}
}

// Larger ones, in random orders.
func TestWalkRandomOrdersOfAGenerator(t *testing.T) {
	for _, spread := range []bool{false, true} {
		t.Run(fmt.Sprintf("spread %v", spread), func(t *testing.T) {
			walk.Rounds(t, walk.Scene{Ticks: 6, Begin: func(t *testing.T) walk.Play {
				s := newScene(t, spread)
				return s.play(
					s.caller("caller", 1, 1, 1, 1, 1, 1), s.caller("filler", 10, 1, 300, 20), s.caller("another", 1, 8, 1, 700),
					s.granter(), s.renewer(), s.granter(), s.stopper(),
				)
			}})
		})
	}
}
