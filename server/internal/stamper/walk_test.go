//go:build steps

package stamper_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// stamping is two processes that stamp ids of pools, of which each has room for one at a time.
type stamping struct {
	of [2]*stamper.Stamper

	mu     sync.Mutex
	ids    map[string]map[snowflake.ID]string // by pool: the caller that got it
	closed bool                               // the first process has returned from Close
	faults []error
}

func newStamping(t *testing.T) *stamping {
	t.Helper()
	// a bubble's clock begins in 2000
	time.Sleep(time.Until(snowflake.DefaultEpoch.AddDate(6, 0, 0)))
	store, _ := storetest.Stepped(t)
	s := &stamping{ids: map[string]map[snowflake.ID]string{}}
	for i := range s.of {
		s.of[i] = stamper.New(workerlease.New(store, trust), stamper.Config{Max: 1, Idle: 4 * time.Second, Spare: time.Second})
	}
	return s
}

// caller stamps in a process, one id of each of the pools.
func (s *stamping) caller(process int, pools ...string) walk.Task {
	name := fmt.Sprintf("caller %v of process %d", pools, process)
	return walk.Task{Name: name, Do: func() {
		for _, pool := range pools {
			s.mu.Lock()
			closed := s.closed && process == 0
			s.mu.Unlock()
			ids := make([]snowflake.ID, 2)
			_, err := s.of[process].Stamp(context.Background(), pool, ids)
			s.note(name, pool, ids, closed, err)
		}
	}}
}

func (s *stamping) note(name, pool string, ids []snowflake.ID, closed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if _, away := errors.AsType[*stamper.UnavailableError](err); !away && !errors.Is(err, stamper.ErrTooMany) {
			s.faults = append(s.faults, fmt.Errorf("%s: %w", name, err))
		}
		return
	}
	if closed {
		s.faults = append(s.faults, fmt.Errorf("%s got %d after Close had returned", name, ids))
	}
	if s.ids[pool] == nil {
		s.ids[pool] = map[snowflake.ID]string{}
	}
	for _, id := range ids {
		if other, twice := s.ids[pool][id]; twice {
			s.faults = append(s.faults, fmt.Errorf("%d of pool %s went to %s and to %s", id, pool, name, other))
		}
		s.ids[pool][id] = name
	}
}

// closer ends the first process.
func (s *stamping) closer() walk.Task {
	return walk.Task{Name: "closer", Do: func() {
		s.of[0].Close(context.Background())
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
	}}
}

func (s *stamping) check() error {
	if len(s.ids) == 0 && !s.closed {
		return errors.New("no call has stamped")
	}
	return errors.Join(s.faults...)
}

func (s *stamping) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: s.check, Close: func() {
		for _, of := range s.of {
			of.Close(context.Background())
		}
	}}
}

func TestWalkEveryOrderOfAServiceThatStamps(t *testing.T) {
	for name, row := range map[string]struct {
		ticks int
		tasks func(*stamping) []walk.Task
	}{
		"its end":          {1, func(s *stamping) []walk.Task { return []walk.Task{s.caller(0, "p", "p"), s.closer()} }},
		"two of one pool":  {0, func(s *stamping) []walk.Task { return []walk.Task{s.caller(0, "p"), s.caller(1, "p")} }},
		"room for another": {1, func(s *stamping) []walk.Task { return []walk.Task{s.caller(0, "p"), s.caller(0, "q", "p")} }},
	} {
		t.Run(name, func(t *testing.T) {
			walk.Every(t, walk.Scene{Preemptions: 1, Ticks: row.ticks, Tick: 2 * time.Second, Begin: func(t *testing.T) walk.Play {
				s := newStamping(t)
				return s.play(row.tasks(s)...)
			}})
		})
	}
}

func TestWalkRandomOrdersOfAServiceThatStamps(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: 12 * time.Second, Begin: func(t *testing.T) walk.Play {
		s := newStamping(t)
		return s.play(s.caller(0, "p", "q", "p"), s.caller(0, "q", "p"), s.caller(1, "p", "p"), s.closer())
	}})
}
