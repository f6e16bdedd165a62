//go:build check

package ids

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, no id is stamped twice.
func TestNoIDIsStampedTwiceWhateverBreaks(t *testing.T) {
	wanted := chaostest.Wanted(t)
	f := newField(t, "leased")
	f.breakAll(wanted)
	f.Finish()
	found := f.found()
	if len(found.twice) > 0 || len(found.falling) > 0 {
		t.Errorf("%v\ntwice: %.10v\nout of order: %.10q", found, found.twice, found.falling)
	}
	if found.ids < 10_000 || len(found.workers) < 2 {
		t.Errorf("%v: too few to say anything", found)
	}
}

// breakAll breaks everything that is wanted while processes stamp.
func (f *field) breakAll(wanted func(name string) bool) {
	for round := range *chaostest.Rounds {
		for _, i := range f.Lot.Perm(len(kinds)) {
			if !wanted(kinds[i].name) {
				continue
			}
			f.T.Logf("round %d: %s", round+1, kinds[i].name)
			f.stage(kinds[i].name)
			kinds[i].strike(f)
			f.Wait()
		}
	}
}

// found is what the files say, which is written down.
func (f *field) found() findings {
	found := check(f.T, f.Folder, f.stages)
	f.T.Log(found)
	chaostest.Prove(f.T, found.rows(f.role, f.stages)...)
	return found
}

// The same processes with INCR, a mask and a key with a TTL stamp ids twice, and the check finds
// them: half of them are stopped for longer than their leases, as in the test above, others come,
// and they go on.
func TestMaskedCounterIsFoundToStampTwice(t *testing.T) {
	f := newField(t, "masked")
	if chaostest.Proving() {
		f.breakAll(chaostest.Wanted(t))
	}
	f.stage(kinds[1].name)
	paused := f.Processes[:len(f.Processes)/2]
	for _, p := range paused {
		p.Stop()
	}
	time.Sleep(ttl + ttl/2)
	f.Processes = f.Processes[len(f.Processes)/2:]
	f.Fill(*processes)
	for _, p := range paused {
		p.Resume()
	}
	f.Processes = append(f.Processes, paused...)
	f.Wait()
	f.Finish()
	found := f.found()
	if len(found.twice) == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}
