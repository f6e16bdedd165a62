//go:build steps

package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/redisstore"
)

// scene is a counter that two processes use, and what was handed out.
type scene struct {
	t      *testing.T
	store  *redisstore.Store
	client *redis.Client
	of     [2]*Counters // by process
	got    [][]Range    // by caller
	errs   []error
	ttl    time.Duration
	anew   atomic.Bool

	mu   sync.Mutex
	late []Range // of calls that began after the counter had begun anew
	// of the calls with one request id
	same   []Range
	failed error
}

// newScene has both processes add to a counter that is at 500.
func newScene(t *testing.T, ttl time.Duration) *scene {
	t.Helper()
	return newSceneAt(t, 500, ttl)
}

// newSceneAt has both processes add to a counter that is at that value.
func newSceneAt(t *testing.T, value int64, ttl time.Duration) *scene {
	t.Helper()
	store, client := storetest.Stepped(t)
	s := &scene{t: t, store: store, client: client, ttl: ttl}
	for i := range s.of {
		s.of[i] = New(store, Config{})
	}
	s.must(s.of[0].Set(t.Context(), "k", value, SetOptions{TTL: ttl}))
	for _, c := range s.of {
		_, err := c.Add(t.Context(), "k", Request{TTL: ttl})
		s.must(err)
	}
	return s
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("a step of the scene: got error %v, want none", err)
	}
}

// caller adds in a process, so much in each call.
func (s *scene) caller(process int, by ...int64) walk.Task {
	i := len(s.got)
	s.got, s.errs = append(s.got, nil), append(s.errs, nil)
	return walk.Task{Name: fmt.Sprintf("caller %d of process %d", i, process), Do: func() {
		for _, n := range by {
			anew := s.anew.Load()
			got, err := s.of[process].Add(context.Background(), "k", Request{By: n, TTL: s.ttl})
			if err != nil {
				s.errs[i] = errors.Join(s.errs[i], err)
				continue
			}
			s.got[i] = append(s.got[i], got)
			if anew {
				s.mu.Lock()
				s.late = append(s.late, got)
				s.mu.Unlock()
			}
		}
	}}
}

// repeater adds in a process under a request id that all of them have, twice.
func (s *scene) repeater(process int) walk.Task {
	return walk.Task{Name: fmt.Sprintf("repeater in process %d", process), Do: func() {
		for range 2 {
			got, err := s.of[process].Add(context.Background(), "k", Request{By: 3, RequestID: "order-1"})
			s.mu.Lock()
			if err == nil {
				s.same = append(s.same, got)
			} else {
				s.failed = errors.Join(s.failed, err)
			}
			s.mu.Unlock()
		}
	}}
}

// once is check, where all that the repeaters got is one range, which nobody else has.
func (s *scene) once(may ...error) func() error {
	return func() error {
		if s.failed != nil && !slices.ContainsFunc(may, func(fine error) bool { return errors.Is(s.failed, fine) }) {
			return fmt.Errorf("a repeater: %w", s.failed)
		}
		for _, got := range s.same {
			if got != s.same[0] || got.Last-got.First != 2 {
				return fmt.Errorf("one request id has the values %v", s.same)
			}
		}
		if len(s.same) > 0 {
			s.got, s.errs = append(s.got, s.same[:1]), append(s.errs, nil)
		}
		return s.check(may...)()
	}
}

// resetter has the counter begin anew.
func (s *scene) resetter() walk.Task {
	return walk.Task{Name: "resetter", Do: func() {
		s.must(s.of[1].Reset(context.Background(), "k"))
		s.anew.Store(true)
	}}
}

// setter sets it far ahead.
func (s *scene) setter() walk.Task {
	return walk.Task{Name: "setter", Do: func() { s.must(s.of[1].Set(context.Background(), "k", 2000, SetOptions{})) }}
}

// promotion has the slot noted in another incarnation of the server, as a failover does.
func (s *scene) promotion() walk.Task {
	return walk.Task{Name: "promotion", Do: func() {
		marker := s.of[0].marker("k")
		text, err := s.client.Get(context.Background(), marker).Result()
		s.must(err)
		_, rest, _ := strings.Cut(text, " ")
		s.must(s.client.Set(context.Background(), marker, "another "+rest, 0).Err())
	}}
}

// flush has the server lose all that it has.
func (s *scene) flush() walk.Task {
	return walk.Task{Name: "flush", Do: func() { s.must(s.client.FlushAll(context.Background()).Err()) }}
}

// check returns what does not hold: no value comes twice, and those of one caller rise unless the
// counter has begun anew. Calls may fail with these errors.
func (s *scene) check(may ...error) func() error {
	return func() error {
		var all []Range
		for i, ranges := range s.got {
			for _, err := range s.errs[i : i+1] {
				if err != nil && !slices.ContainsFunc(may, func(fine error) bool { return errors.Is(err, fine) }) {
					return fmt.Errorf("caller %d: %w", i, err)
				}
			}
			if !s.anew.Load() && s.ttl == 0 && !slices.IsSortedFunc(ranges, byValue) {
				return fmt.Errorf("the values of caller %d do not rise: %v", i, ranges)
			}
			all = append(all, ranges...)
		}
		slices.SortFunc(all, byValue)
		for i, r := range all {
			if i > 0 && r.First <= all[i-1].Last {
				return fmt.Errorf("%v and %v were handed out", all[i-1], r)
			}
		}
		for _, r := range s.late {
			if r.First > 500 {
				return fmt.Errorf("%v was handed out by a call that began after Reset had returned", r)
			}
		}
		return nil
	}
}

// ends is nil, or an error if a caller got one, or if the counter stays for ever.
func (s *scene) ends() error {
	if err := errors.Join(s.errs...); err != nil {
		return err
	}
	left, err := s.client.PTTL(context.Background(), s.of[0].key("k")).Result()
	if err == nil && left == -1 {
		return errors.New("the counter has no end")
	}
	return err
}

func byValue(a, b Range) int { return int(a.First - b.First) }

func (s *scene) play(check func() error, tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: check, Close: func() {
		for _, c := range s.of {
			_ = c.Close()
		}
	}}
}

var scenes = map[string]walk.Scene{
	"a batch and a promotion": {Preemptions: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 0)
		return s.play(s.check(), s.caller(0, 1), s.caller(0, 3), s.promotion())
	}},
	"two processes and a promotion": {Preemptions: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 0)
		return s.play(s.check(), s.caller(0, 2), s.caller(1, 3), s.promotion())
	}},
	"a batch and a counter that begins anew": {Preemptions: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 0)
		return s.play(s.check(), s.caller(0, 1, 1), s.caller(0, 3), s.resetter())
	}},
	"a batch and a counter that is set ahead": {Preemptions: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 0)
		return s.play(s.check(), s.caller(0, 1), s.caller(0, 3), s.setter())
	}},
	"one request id and a batch": {Preemptions: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 0)
		return s.play(s.once(), s.repeater(0), s.repeater(1), s.caller(0, 1))
	}},
	"one request id and a promotion": {Preemptions: 1, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 0)
		return s.play(s.once(), s.repeater(0), s.repeater(1), s.promotion())
	}},
	"two processes and a counter that ends": {Preemptions: 1, Ticks: 1, Tick: 500 * time.Millisecond, Begin: func(t *testing.T) walk.Play {
		s := newScene(t, 500*time.Millisecond)
		return s.play(func() error { return errors.Join(s.check()(), s.ends()) }, s.caller(0, 1, 1), s.caller(1, 3))
	}},
	"a counter below 0 that ends": {Preemptions: 1, Ticks: 1, Tick: 500 * time.Millisecond, Begin: func(t *testing.T) walk.Play {
		s := newSceneAt(t, -9, 500*time.Millisecond)
		return s.play(func() error { return errors.Join(s.check()(), s.ends()) }, s.caller(0, 1, 1), s.caller(0, 1), s.caller(1, 3))
	}},
}

func TestWalkEveryOrderOfACounter(t *testing.T) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) { walk.Every(t, scene) })
	}
}

func TestWalkRandomOrdersOfACounter(t *testing.T) {
	for name, end := range map[string]func(*scene) walk.Task{
		"promotion": (*scene).promotion, "reset": (*scene).resetter, "set": (*scene).setter, "flush": (*scene).flush,
	} {
		t.Run(name, func(t *testing.T) {
			walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: 2 * time.Second, Begin: func(t *testing.T) walk.Play {
				s := newScene(t, 0)
				return s.play(s.check(ErrHoldOff), s.caller(0, 1, 2, 1), s.caller(0, 3, 1), s.caller(1, 1, 4), end(s))
			}})
		})
	}
}

// A reply of one process may come when the other has been answered twice.
func TestWalkRandomOrdersOfARequestID(t *testing.T) {
	for name, end := range map[string]func(*scene) walk.Task{"promotion": (*scene).promotion, "set": (*scene).setter} {
		t.Run(name, func(t *testing.T) {
			walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: 2 * time.Second, Begin: func(t *testing.T) walk.Play {
				s := newScene(t, 0)
				return s.play(s.once(ErrHoldOff), s.repeater(0), s.repeater(1), s.caller(0, 2, 1), s.caller(1, 1), end(s))
			}})
		})
	}
}
