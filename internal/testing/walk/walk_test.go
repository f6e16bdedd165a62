//go:build steps

package walk

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/step"
)

// lost is two tasks that add one to a number, of which one may be lost.
func lost(t *testing.T) Play {
	t.Helper()
	var mu sync.Mutex
	var n int
	add := func() {
		mu.Lock()
		read := n
		mu.Unlock()
		step.At("test: read")
		mu.Lock()
		n = read + 1
		mu.Unlock()
	}
	return Play{Tasks: []Task{{"one", add}, {"another", add}}, Check: func() error {
		if n != 2 {
			return errors.New("one was lost")
		}
		return nil
	}}
}

func TestWalkSearchFindsWhatIsLost(t *testing.T) {
	if _, _, fault := (Scene{Begin: lost}).search(t, *most); fault == nil || !strings.Contains(fault.Error(), "test: read") {
		t.Errorf("Search: got %v, want one that was lost, and the order", fault)
	}
}

// The random orders of a scene with many orders find what is lost, and are the same each time.
func TestWalkRandomOrdersOfASeedAreTheSame(t *testing.T) {
	find := func() string {
		scene := Scene{Begin: lost}
		for round := range 2000 {
			if fault := scene.drawn(t, 1, round); fault != nil {
				return fmt.Sprint(round, fault)
			}
		}
		return ""
	}
	if first, again := find(), find(); first == "" || first != again {
		t.Errorf("found %q, and then %q; want the same order twice", first, again)
	}
}

// Each round is in one process.
func TestWalkSharesAreAllRounds(t *testing.T) {
	for _, rounds := range []int{1, share, share + 1, 10*share - 1} {
		next := 0
		for _, p := range parts(rounds) {
			if p.from != next || p.rounds < 1 || p.rounds > share {
				t.Errorf("parts(%d): got %+v after round %d", rounds, p, next)
			}
			next += p.rounds
		}
		if next != rounds {
			t.Errorf("parts(%d): got %d rounds", rounds, next)
		}
	}
}

func TestWalkRandomRoundsInProcesses(t *testing.T) {
	none := func(*testing.T) Play {
		return Play{Tasks: []Task{{"one", func() { step.At("test: a point") }}}, Check: func() error { return nil }}
	}
	for name, rounds := range map[string]int{"one": 1, "a share of (all)": share, "more": share + 1} {
		t.Run(name, func(t *testing.T) {
			if *from == 0 && *asked == 0 {
				inProcesses(t, 7, rounds)
			} else {
				Rounds(t, Scene{Begin: none})
			}
		})
	}
}
