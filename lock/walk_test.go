//go:build steps

package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/redisstore"
)

// scene is a lock that two processes ask for, and who holds it.
type scene struct {
	t  *testing.T
	of [2]*Locks

	mu     sync.Mutex
	holder *Lock
	last   int64 // fence
	faults []error
}

func newScene(t *testing.T) *scene {
	t.Helper()
	store, _ := storetest.Stepped(t)
	s := &scene{t: t, of: [2]*Locks{New(store, Config{}), New(store, Config{})}}
	for _, locks := range s.of { // scripts are loaded, and both have subscribed
		locks.notifier.Listen(t.Context())
		expect.NoError(t, "Release", must(t, locks, "l", Request{}).Release(t.Context()))
	}
	return s
}

// caller acquires the lock in a process, works, and gives it back.
func (s *scene) caller(process int, request Request) walk.Task {
	return walk.Task{Name: fmt.Sprintf("process %d", process), Do: func() {
		held, err := s.of[process].Acquire(context.Background(), "l", request)
		if err != nil {
			if request.Wait == 0 || !errors.Is(err, ErrHeld) {
				s.fault(fmt.Errorf("process %d: Acquire: %w", process, err))
			}
			return
		}
		s.enter(held)
		step.At("holder: works")
		s.leave(held)
		// the walker may let more time pass than a release has
		if err := held.Release(context.Background()); err != nil && !errors.Is(err, redisstore.ErrUnknownOutcome) {
			s.fault(fmt.Errorf("process %d: Release: %w", process, err))
		}
	}}
}

func (s *scene) fault(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, err)
}

func (s *scene) enter(held *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil && s.holder.Context().Err() == nil {
		s.faults = append(s.faults, errors.New("two hold the lock at once"))
	}
	if held.Fence() <= s.last {
		s.faults = append(s.faults, fmt.Errorf("fence %d follows %d", held.Fence(), s.last))
	}
	s.last, s.holder = held.Fence(), held
}

func (s *scene) leave(held *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder == held {
		s.holder = nil
	}
}

// check returns what does not hold: one holder at a time, fences that grow, and a lock that is free
// at the end, with no waiter that has a place.
func (s *scene) check() error {
	if err := errors.Join(s.faults...); err != nil {
		return err
	}
	info, err := s.of[0].Get(context.Background(), "l")
	if err != nil || len(info.Holders) > 0 || info.Queue > 0 {
		return fmt.Errorf("at the end: %+v, %w", info, err)
	}
	for i, locks := range s.of {
		if len(locks.gates.of) > 0 {
			return fmt.Errorf("process %d: a gate is left: %+v", i, locks.gates.of)
		}
	}
	return nil
}

func (s *scene) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: s.check, Close: func() {
		for _, locks := range s.of {
			_ = locks.Close()
		}
	}}
}

var scenes = map[string]walk.Scene{
	"an acquisition and a release": {Preemptions: 3, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(0, Request{}), s.caller(1, Request{}))
	}},
	"two of one process": {Preemptions: 3, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(0, Request{}), s.caller(0, Request{}))
	}},
	"a wait that ends while the lock is given back": {Preemptions: 1, Ticks: 1, Tick: time.Second / 5, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(0, Request{}), s.caller(1, Request{Wait: time.Second / 5}))
	}},
	"a wait at the gate that ends": {Preemptions: 1, Ticks: 1, Tick: time.Second / 5, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(0, Request{}), s.caller(0, Request{Wait: time.Second / 5}))
	}},
}

func TestWalkEveryOrderOfALock(t *testing.T) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) { walk.Every(t, scene) })
	}
}

func TestWalkRandomOrdersOfALock(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: time.Second / 5, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(0, Request{}), s.caller(0, Request{Wait: time.Second / 5}), s.caller(1, Request{}),
			s.caller(1, Request{Wait: time.Second / 2}))
	}})
}
