//go:build steps

package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/step"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
)

// scene is a tag, and the ids that were drawn of it.
type scene struct {
	t      *testing.T
	source *shelf
	s      *Segments
	tag    *Tag
	found  [][]int64 // by caller
	closed bool      // or the source failed: calls may fail
	errs   []error
}

// newScene has a tag with ranges of so many ids, and all but one of the first range drawn.
func newScene(t *testing.T, size int64, config Config) *scene {
	t.Helper()
	source := newShelf("orders", 0, size)
	source.add("other", 0)
	source.before = func(context.Context, string) error {
		step.At("source: is asked")
		return nil
	}
	config.MaxStep = size
	w := &scene{t: t, source: source, s: New(source, config)}
	var err error
	if w.tag, err = w.s.Tag(t.Context(), "orders"); err != nil {
		t.Fatalf("Tag orders: got error %v, want none", err)
	}
	expect.NoError(t, "NextN", w.tag.Fill(t.Context(), make([]int64, size-1)))
	return w
}

// caller draws ids in each of some calls: 1 with Next, another number with Fill.
func (w *scene) caller(name string, calls ...int) walk.Task {
	i := len(w.found)
	w.found, w.errs = append(w.found, nil), append(w.errs, nil)
	return walk.Task{Name: name, Do: func() {
		for _, n := range calls {
			ids := make([]int64, n)
			var err error
			if n == 1 {
				ids[0], err = w.tag.Next(w.t.Context())
			} else {
				err = w.tag.Fill(w.t.Context(), ids)
			}
			if err != nil {
				w.errs[i] = err
				continue
			}
			w.found[i] = append(w.found[i], ids...)
		}
	}}
}

func (w *scene) check() error {
	var all []int64
	for i, ids := range w.found {
		if !slices.IsSorted(ids) {
			return fmt.Errorf("the ids of caller %d do not rise: %v", i, ids)
		}
		if err := w.errs[i]; err != nil && !w.closed {
			return fmt.Errorf("caller %d: %w", i, err)
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	for i, id := range all {
		if i > 0 && id == all[i-1] {
			return fmt.Errorf("%d was drawn twice", id)
		}
		if !slices.ContainsFunc(w.source.takes, func(t take) bool { return t.given.Lo <= id && id < t.given.Hi && t.tag == "orders" }) {
			return fmt.Errorf("%d is of no range that the source gave", id)
		}
	}
	if w.source.twice {
		return errors.New("two Takes of one tag were under way at once")
	}
	return nil
}

func (w *scene) play(tasks ...walk.Task) walk.Play {
	return walk.Play{Tasks: tasks, Check: w.check, Close: w.s.Close}
}

// drop has the tag let go as an idle one, whatever it was used for.
func (w *scene) drop() walk.Task {
	return walk.Task{Name: "drop", Do: func() {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		if c := w.s.chains["orders"]; c != nil {
			now := time.Now()
			c.lastUse(now)
			w.s.letGoLocked(c, now, 0)
		}
	}}
}

var errAway = errors.New("the source is away")

var scenes = map[string]walk.Scene{
	"two callers cross to the next range": {Preemptions: 3, Begin: func(t *testing.T) walk.Play {
		w := newScene(t, 2, Config{Ahead: 0.9})
		return w.play(w.caller("caller", 1), w.caller("filler", 3))
	}},
	"the mark is passed while the next range is fetched": {Preemptions: 2, Begin: func(t *testing.T) walk.Play {
		w := newScene(t, 4, Config{Ahead: 0.1})
		return w.play(w.caller("caller", 1, 1), w.caller("another", 1), w.caller("filler", 2))
	}},
	"a caller while the tag is let go": {Preemptions: 2, Begin: func(t *testing.T) walk.Play {
		w := newScene(t, 3, Config{})
		return w.play(w.caller("caller", 1, 1), w.caller("filler", 2), w.drop())
	}},
	"a caller while the source fails once": {Preemptions: 2, Tick: 50 * time.Millisecond, Begin: func(t *testing.T) walk.Play {
		w := newScene(t, 2, Config{})
		failed := false
		w.closed = true
		synctest.Wait() // for the range that is fetched ahead
		w.source.before = func(context.Context, string) error {
			step.At("source: is asked")
			if !failed {
				failed = true
				return errAway
			}
			return nil
		}
		return w.play(w.caller("caller", 1, 1), w.caller("filler", 3))
	}},
	"a caller while all is closed": {Preemptions: 2, Begin: func(t *testing.T) walk.Play {
		w := newScene(t, 2, Config{})
		w.closed = true
		return w.play(w.caller("caller", 1), w.caller("filler", 3), walk.Task{Name: "closer", Do: w.s.Close})
	}},
}

func TestWalkEveryOrderOfATag(t *testing.T) {
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) { walk.Every(t, scene) })
	}
}

func TestWalkRandomOrdersOfATag(t *testing.T) {
	walk.Rounds(t, walk.Scene{Ticks: 5, Begin: func(t *testing.T) walk.Play {
		w := newScene(t, 3, Config{Ahead: 0.5})
		return w.play(w.caller("caller", 1, 1, 1, 1, 1), w.caller("another", 1, 2, 1, 1), w.caller("filler", 3, 7, 1), w.drop(), w.drop())
	}})
}
