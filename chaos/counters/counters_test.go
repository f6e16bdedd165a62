//go:build check

package counters

import (
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, no value is told to two callers, and none falls.
func TestNoValueIsToldTwiceWhateverBreaks(t *testing.T) {
	found := rounds(t, "ours", chaostest.Wanted(t))
	if *ack == 2 && !*outside && found.twice.n+found.falling.n > 0 {
		t.Errorf("got values twice or falling, want none:\n%s", found.samples())
	}
}

// The same processes with plain INCR are told values twice, and the check finds them.
func TestPlainINCRIsFoundToTellValuesTwice(t *testing.T) {
	wanted := chaostest.Wanted(t)
	if *chaostest.Rounds == 1 && !chaostest.Proving() {
		wanted = func(name string) bool { return name == cutOff }
	}
	found := rounds(t, "plain", wanted)
	if found.twice.n == 0 {
		t.Error("nothing was found")
	}
}

// rounds breaks everything that is wanted while processes count, and tells what was found.
func rounds(t *testing.T, role string, wanted func(name string) bool) *findings {
	t.Helper()
	// beside other tests both have to be short; at length each has the machine to itself
	if *chaostest.Rounds == 1 || chaostest.Proving() {
		t.Parallel()
	}
	f := newField(t, role)
	defer func() {
		if t.Failed() {
			t.Logf("%s, ack %d, until it failed: %v", role, *ack, check(t, f.Folder, f.stages))
		}
	}()
	kinds := kinds
	if *outside {
		kinds = beyond
	}
	for round := range *chaostest.Rounds {
		for _, i := range f.Lot.Perm(len(kinds)) {
			if !wanted(kinds[i].name) || kinds[i].long && *chaostest.Rounds == 1 && *chaostest.Faults == "" && !chaostest.Proving() {
				continue
			}
			t.Logf("round %d: %s", round+1, kinds[i].name)
			f.stage(kinds[i].name)
			kinds[i].strike(f)
			f.settle()
		}
	}
	for _, p := range f.Processes {
		f.finish(p)
	}
	found := check(t, f.Folder, f.stages)
	t.Logf("%s, ack %d, %d rounds: %v", role, *ack, *chaostest.Rounds, found)
	chaostest.Prove(t, found.rows(role, evidence.Processes, f.stages)...)
	if found.values < 1000 || found.files < *processes {
		t.Errorf("%v: too few to say anything", found)
	}
	return found
}
