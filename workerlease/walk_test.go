//go:build steps

package workerlease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// stamping is a pool of two worker ids, one of which is held, and who stamps with the
// other.
type stamping struct {
	t     *testing.T
	pools *workerlease.Pools
	first *workerlease.Stamper

	mu     sync.Mutex
	ids    map[snowflake.ID]string // who stamped it
	faults []error
}

func newStamping(t *testing.T) *stamping {
	t.Helper()
	store, _ := storetest.Stepped(t)
	s := &stamping{t: t, pools: workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust}), ids: map[snowflake.ID]string{}}
	if _, err := s.pools.Acquire(t.Context(), "p", of(1)); err != nil {
		t.Fatalf("Acquire p: got error %v, want none", err)
	}
	var err error
	if s.first, err = s.pools.Stamp(t.Context(), "p", of(1), workerlease.HoldOptions{}, snowflake.Config{}); err != nil {
		t.Fatalf("Stamp p: got error %v, want none", err)
	}
	return s
}

func (s *stamping) stamp(who string, stamper *workerlease.Stamper, calls int) {
	for range calls {
		id, err := stamper.Next(context.Background())
		if err != nil {
			return // its lease is over
		}
		s.mu.Lock()
		if other, twice := s.ids[id]; twice {
			s.faults = append(s.faults, fmt.Errorf("%d was stamped by %s and by %s", id, other, who))
		}
		s.ids[id] = who
		s.mu.Unlock()
	}
}

// leaver stamps with the first stamper, and gives its worker id back.
func (s *stamping) leaver(calls int) walk.Task {
	return walk.Task{Name: "leaver", Do: func() {
		s.stamp("leaver", s.first, calls)
		_ = s.first.Close(context.Background())
	}}
}

// comer takes the worker id as soon as it is free, stamps, and gives it back.
func (s *stamping) comer(name string, calls int) walk.Task {
	return walk.Task{Name: name, Do: func() {
		stamper, err := s.pools.Stamp(context.Background(), "p", of(1), workerlease.HoldOptions{}, snowflake.Config{})
		switch {
		case errors.Is(err, workerlease.ErrExhausted):
			return
		case err != nil:
			s.mu.Lock()
			defer s.mu.Unlock()
			s.faults = append(s.faults, fmt.Errorf("%s: %w", name, err))
			return
		}
		s.stamp(name, stamper, calls)
		_ = stamper.Close(context.Background())
	}}
}

func (s *stamping) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: func() error { return errors.Join(s.faults...) },
		Close: func() { _ = s.first.Close(context.Background()) }}
}

// A renewal is due after a third of the TTL, give or take a tenth.
func TestWalkEveryOrderOfALease(t *testing.T) {
	walk.Every(t, walk.Scene{Preemptions: 1, Ticks: 1, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t)
		return s.play(s.leaver(1), s.comer("comer", 1))
	}})
}

func TestWalkRandomOrdersOfALease(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t)
		return s.play(s.leaver(2), s.comer("comer", 2), s.comer("another", 2))
	}})
}
