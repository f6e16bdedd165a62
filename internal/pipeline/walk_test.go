//go:build steps

package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// scene is calls of one store, of which some are given up.
type scene struct {
	store   *redisstore.Store
	client  *redis.Client
	errs    []error
	key     string
	cancels []context.CancelFunc
}

func newScene(t *testing.T) *scene {
	t.Helper()
	store, client := storetest.Stepped(t)
	s := &scene{store: store, client: client, key: onstore.Key(store, "test", "names")}
	if _, err := onstore.Run(t.Context(), store, scripts.NameAdd, []string{s.key}, "first"); err != nil {
		t.Fatalf("adding the first name: got error %v, want none", err)
	}
	return s
}

// caller adds a name.
func (s *scene) caller() walk.Task {
	i := len(s.errs)
	ctx, cancel := context.WithCancel(context.Background())
	s.errs, s.cancels = append(s.errs, nil), append(s.cancels, cancel)
	return walk.Task{Name: fmt.Sprint("caller ", i), Do: func() {
		_, s.errs[i] = onstore.Run(ctx, s.store, scripts.NameAdd, []string{s.key}, fmt.Sprint("name ", i))
	}}
}

// canceller ends the context of the last caller.
func (s *scene) canceller() walk.Task {
	return walk.Task{Name: "canceller", Do: s.cancels[len(s.cancels)-1]}
}

// check returns what does not hold: what succeeded was done, and what was refused was not.
func (s *scene) check() error {
	for i, err := range s.errs {
		_, missing := s.client.ZScore(context.Background(), s.key, fmt.Sprint("name ", i)).Result()
		there := missing == nil
		switch {
		case err == nil && !there:
			return fmt.Errorf("call %d succeeded, and was not done: %w", i, missing)
		case err != nil && there && !errors.Is(err, redisstore.ErrUnknownOutcome):
			return fmt.Errorf("call %d was done, and its error is %w", i, err)
		case err != nil && i < len(s.errs)-1:
			return fmt.Errorf("call %d, which nobody has given up: %w", i, err)
		}
	}
	return nil
}

func (s *scene) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: s.check, Close: func() {
		for _, cancel := range s.cancels {
			cancel()
		}
	}}
}

func TestWalkEveryOrderOfCallsThatShareARoundTrip(t *testing.T) {
	walk.Every(t, walk.Scene{Preemptions: 2, Ticks: 1, Tick: time.Millisecond, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(), s.caller(), s.canceller())
	}})
}

func TestWalkRandomOrdersOfCallsThatShareARoundTrip(t *testing.T) {
	walk.Rounds(t, walk.Scene{Slow: true, Ticks: 2, Tick: time.Millisecond, Begin: func(t *testing.T) walk.Play {
		s := newScene(t)
		return s.play(s.caller(), s.caller(), s.caller(), s.caller(), s.canceller())
	}})
}
