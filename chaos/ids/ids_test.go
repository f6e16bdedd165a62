//go:build check

package ids

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, no id is stamped twice.
func TestNoIDIsStampedTwiceWhateverBreaks(t *testing.T) {
	chaostest.Beside(t)
	f := newField(t, "leased")
	f.breakAll()
	chaostest.Await(t, time.Minute, func() string {
		if found := check(t, f.Folder, nil); found.ids < enough {
			return found.String()
		}
		return ""
	})
	f.Finish()
	found := f.found()
	if found.twice.N > 0 || found.falling.N > 0 {
		t.Errorf("got ids twice or out of order, want none: %v\n%s%s", found, found.twice.Report("twice"), found.falling.Report("out of order"))
	}
	if found.ids < enough || len(found.workers) < 2 {
		t.Errorf("%v: too few to say anything", found)
	}
}

// enough is how many ids are compared at least.
const enough = 10_000

// breakAll breaks everything that is wanted while processes stamp.
func (f *field) breakAll() {
	chaostest.EachRound(f.T, f.Lot, chaostest.Chosen(f.T, kinds), func(kind chaostest.Fault[*field]) {
		f.stage(kind.Name)
		kind.Strike(f)
		f.Wait()
	})
}

// found is what the files say, which is written down.
func (f *field) found() findings {
	found := check(f.T, f.Folder, f.Stages)
	f.T.Log(found)
	chaostest.Prove(f.T, found.rows(f.Role, f.Stages)...)
	return found
}

// The same processes with INCR, a mask and a key with a TTL stamp ids twice, and the check finds
// them: half of them are stopped for longer than their leases, as in the test above, others come,
// and they go on.
func TestMaskedCounterIsFoundToStampTwice(t *testing.T) {
	chaostest.Beside(t)
	f := newField(t, "masked")
	if chaostest.Proving() {
		f.breakAll()
	}
	for again := 0; again == 0 || again < 10 && check(t, f.Folder, nil).twice.N == 0; again++ {
		f.overtake()
	}
	f.Finish()
	found := f.found()
	if found.twice.N == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}

// overtake stops half of the processes for longer than their leases, and has others come before
// they go on. On a busy machine one that goes on may look at its key first.
func (f *field) overtake() {
	f.stage(halfStopped)
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
	others := len(f.Processes)
	f.Processes = append(f.Processes, paused...)
	f.Wait()
	f.End(f.Processes[others:]...) // as many are left as before
	f.Processes = f.Processes[:others]
}
