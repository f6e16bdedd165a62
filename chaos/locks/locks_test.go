//go:build check

package locks

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, every history has an explanation.
func TestEveryHistoryIsExplainedWhateverBreaks(t *testing.T) {
	for _, row := range []struct {
		name  string
		kinds []fault
		ack   int
	}{{"one replica confirms", kinds, 1}, {"both replicas confirm", live, 2}, {"none confirms, and the master stays", sparing, 0}} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			wanted := chaostest.Wanted(t)
			row.kinds = slices.DeleteFunc(slices.Clone(row.kinds), func(kind fault) bool { return !wanted(kind.name) })
			if len(row.kinds) > 0 {
				newField(t, "fenced", cmp.Or(*ack, row.ack)).run(row.kinds)
			}
		})
	}
}

// run has each kind of fault strike once in a round, in an order drawn by lot, and judges the
// histories.
func (f *field) run(kinds []fault) {
	for round := range *chaostest.Rounds {
		for _, i := range f.Lot.Perm(len(kinds)) {
			f.play(kinds[i], round)
		}
	}
	f.Finish()
	found := readHistories(f.T, f.Folder)
	f.T.Log(found)
	violations := found.violations()
	f.prove(found, violations)
	for _, violation := range violations {
		name, _, _ := strings.Cut(violation, ",")
		_, scene, _ := strings.Cut(name, "-")
		if slices.Contains(f.void, scene) {
			f.T.Logf("void: %s", violation)
			continue
		}
		f.T.Error(violation)
	}
	struck := *chaostest.Rounds * len(kinds)
	if len(f.void) > 1+struck/10 {
		f.T.Errorf("Sentinel has replaced the master by itself in %d of %d scenes: this machine is too busy to say anything", len(f.void), struck)
	}
	if handed := found.handed(); handed < struck {
		f.T.Errorf("%v: too few were handed on to say anything", found)
	}
	if found.grants < 20*struck {
		f.T.Errorf("%v: too few to say anything", found)
	}
}

// play has a fault strike in a scene of its own. With one confirmation a scene in which the
// sentinels replace a master that is alive, since the machine is too busy, is void: then a master
// that is replaced while it serves loses what one replica has confirmed, see
// TestLiveMasterThatIsReplacedNeedsEveryReplicaToConfirm.
func (f *field) play(kind fault, round int) {
	f.scene()
	scene := strconv.Itoa(f.scenes)
	f.kinds[scene] = kind.name
	f.T.Logf("round %d, scene %s: %s", round+1, scene, kind.name)
	f.Wait()
	epoch := f.epoch()
	start := time.Now()
	kind.strike(f)
	f.Wait()
	f.T.Logf("all are served again %v after the strike", time.Since(start).Round(time.Millisecond))
	if made := f.epoch() - epoch; made != kind.failovers && kind.failovers != whatever && f.ack < 2 {
		f.T.Logf("void: %d failovers, and %d were expected", made, kind.failovers)
		f.void = append(f.void, scene)
	}
}

// The same processes with SETNX and a TTL hold at once when one of them was stopped for longer than
// its lease, and the check finds it.
func TestNaiveLockIsFoundToBeHeldTwice(t *testing.T) {
	t.Parallel()
	f := newField(t, "naive", 0)
	found := ""
	for range 10 { // a process that is stopped between two locks shows nothing
		p := f.holder()
		f.stopped(p)
		written := p.size()
		chaostest.Await(t, time.Minute, func() string {
			if p.size() == written {
				return "who was stopped does nothing"
			}
			return ""
		})
		found = strings.Join(readHistories(t, f.Folder).violations(), "\n")
		if strings.Contains(found, "as mutex: Illegal") {
			t.Log(found)
			return
		}
	}
	t.Errorf("it was not found: %q", found)
}
