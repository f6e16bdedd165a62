//go:build check

package counters

import (
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, no value is told to two callers, and none falls.
func TestNoValueIsToldTwiceWhateverBreaks(t *testing.T) {
	faults := kinds
	if *outside {
		faults = beyond
	}
	found := rounds(t, "ours", faults)
	if *ack == 2 && !*outside && found.twice.N+found.falling.N > 0 {
		t.Errorf("got values twice or falling, want none: %v", found)
	}
}

// The same processes with plain INCR are told values twice, and the check finds them.
func TestPlainINCRIsFoundToTellValuesTwice(t *testing.T) {
	faults := kinds
	if chaostest.Short() {
		faults = chaostest.Named(kinds, cutOff)
	}
	if found := rounds(t, "plain", faults); found.twice.N == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}

// rounds breaks everything that is wanted while processes count, and tells what was found.
func rounds(t *testing.T, role string, faults []chaostest.Fault[*field]) *findings {
	t.Helper()
	chaostest.Beside(t)
	f := newField(t, role)
	defer func() {
		if t.Failed() {
			t.Logf("%s, ack %d, until it failed: %v", role, *ack, check(t, f.Folder, f.Stages))
		}
	}()
	f.settle()
	chaostest.EachRound(t, f.Lot, chaostest.Chosen(t, faults), func(kind chaostest.Fault[*field]) {
		f.Stage(moment(), kind.Name)
		kind.Strike(f)
		f.settle()
	})
	f.Finish()
	found := check(t, f.Folder, f.Stages)
	t.Logf("%s, ack %d, %d rounds: %v", role, *ack, *chaostest.Rounds, found)
	chaostest.Prove(t, found.rows(role, evidence.Processes, f.Stages)...)
	if found.values < 1000 || found.files < *processes {
		t.Errorf("%v: too few to say anything", found)
	}
	return found
}
