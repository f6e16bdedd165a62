//go:build check

package locks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, every history has an explanation.
func TestEveryHistoryIsExplainedWhateverBreaks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		role  string
		kinds []fault
		ack   int
	}{
		{"one replica confirms", "fenced", kinds, 1}, {"both replicas confirm", "fenced", live, 2},
		{"none confirms, and the master stays", "fenced", sparing, 0}, {"both replicas confirm, and all wait after a loss", "waiting", losses, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if kinds := chaostest.Chosen(t, row.kinds); len(kinds) > 0 {
				f := newField(t, "", row.role, cmp.Or(*ack, row.ack))
				f.Fill(*processes)
				f.run(kinds)
			}
		})
	}
}

// run has each kind of fault strike once in a round, in an order drawn by lot, and judges the
// histories.
func (f *field) run(kinds []fault) {
	struck := *chaostest.Rounds * len(kinds)
	found := f.playAll(kinds, 20*struck)
	violations := found.violations()
	f.prove(found, violations)
	for _, violation := range violations {
		if slices.Contains(f.void, sceneOf(violation)) {
			f.T.Logf("void: %s", violation)
			continue
		}
		f.T.Errorf("a history without an explanation: %s", violation)
	}
	if f.voidFaults > 1+struck/10 {
		f.T.Errorf("Sentinel has replaced the master by itself again and again in %d of %d scenes: this machine is too busy to say anything", f.voidFaults, struck)
	}
}

// playAll has each kind of fault strike once in a round, once more where that told nothing, and
// reads what was written, of which there have to be so many grants.
func (f *field) playAll(kinds []fault, grants int) *histories {
	chaostest.EachRound(f.T, f.Lot, kinds, func(kind fault) {
		tells := f.play(kind)
		for again := 0; again < 3 && !tells && f.Patience == 0; again++ {
			f.watch.Hesitate(f.T)
			tells = f.play(kind)
		}
		if !tells {
			f.voidFaults++
		}
	})
	chaostest.Await(f.T, time.Minute, func() string {
		if found := readHistories(f.T, f.Folder); found.grants < grants {
			return fmt.Sprintf("%v: too few to say anything", found)
		}
		return ""
	})
	f.Finish()
	found := readHistories(f.T, f.Folder)
	f.T.Log(found)
	return found
}

// play has a fault strike in a scene of its own, and reports whether that tells anything. With one
// confirmation a scene in which the sentinels replace a master that is alive, since the machine is
// too busy, is void: then a master that is replaced while it serves loses what one replica has
// confirmed, see
// TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm.
func (f *field) play(kind fault) (tells bool) {
	f.scene()
	scene := strconv.Itoa(f.scenes)
	f.kinds[scene] = kind.Name
	f.T.Logf("scene %s: %s", scene, kind.Name)
	replaced := f.Replaced
	defer func() { f.waited[scene] += f.Replaced - replaced }()
	f.Wait()
	before := f.watch.Switched()
	start := time.Now()
	kind.Strike(f)
	f.struck[scene] = [2]time.Time{start, time.Now()}
	f.Wait()
	f.T.Logf("all are served again %v after the strike", time.Since(start).Round(time.Millisecond))
	if made := f.watch.Switched() - before; made != kind.Failovers && kind.Failovers != chaostest.AnyFailovers && f.Ack < 2 {
		f.T.Logf("void: %d failovers, and %d were expected", made, kind.Failovers)
		// in the scene before it some still waited for a lock
		f.void = append(f.void, scene, strconv.Itoa(f.scenes-1))
		return false
	}
	return true
}

// The same processes with SETNX and a TTL hold at once when one of them was stopped for longer than
// its lease, and the check finds it.
func TestNaiveLockIsFoundToBeHeldTwice(t *testing.T) {
	t.Parallel()
	f := newField(t, "", "naive", 0)
	f.Fill(*processes)
	found := ""
	for range 10 { // a process that is stopped between two locks shows nothing
		f.stopped(f.holder())
		f.Wait()
		found = strings.Join(readHistories(t, f.Folder).violations(), "\n")
		if strings.Contains(found, "as mutex: Illegal") {
			t.Log(found)
			return
		}
	}
	t.Errorf("it was not found: %q", found)
}

// Overlaps are found where they are, and nowhere else.
func TestOverlapsAreFound(t *testing.T) {
	inOrder := []porcupine.Operation{granted(0, 0, 10, 0), ended(0, 30, 35), granted(1, 5, 31, 0), ended(1, 40, 41)}
	if found := overlaps(inOrder); len(found) > 0 {
		t.Errorf("got %v, want none", found)
	}
	inOrder[2].Return = 29
	if found := overlaps(inOrder); len(found) != 1 || found[0][1].grant.ClientId != 1 {
		t.Errorf("got %v, want the grant at 29", found)
	}
}
