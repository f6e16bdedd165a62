//go:build check

package ids

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// Whatever breaks, no id is stamped twice.
func TestNoIDIsStampedTwiceWhateverBreaks(t *testing.T) {
	wanted := chaostest.Wanted(t)
	f := newField(t, "leased")
	f.breakAll(wanted)
	f.awaitIDs(enough)
	f.Finish()
	found := f.found()
	if len(found.twice) > 0 || len(found.falling) > 0 {
		t.Errorf("%v\ntwice: %.10v\nout of order: %.10q", found, found.twice, found.falling)
	}
	if found.ids < enough || len(found.workers) < 2 {
		t.Errorf("%v: too few to say anything", found)
	}
}

// enough is how many ids are compared at least.
const enough = 10_000

// awaitIDs waits until that many ids have been stamped in all.
func (f *field) awaitIDs(n int) {
	f.T.Helper()
	chaostest.Await(f.T, time.Minute, func() string {
		files, err := filepath.Glob(filepath.Join(f.Folder, "*.ids"))
		stamped := int64(0)
		for _, file := range files {
			stamped += chaostest.Size(file) / 8
		}
		if stamped < int64(n) {
			return fmt.Sprintf("%d of %d ids, %v", stamped, n, err)
		}
		return ""
	})
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
	for again := 0; again == 0 || again < 10 && len(check(t, f.Folder, nil).twice) == 0; again++ {
		f.overtake()
	}
	f.Finish()
	found := f.found()
	if len(found.twice) == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}

// overtake stops half of the processes for longer than their leases, and has others come before
// they go on. On a busy machine one that goes on may look at its key first.
func (f *field) overtake() {
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
	others := len(f.Processes)
	f.Processes = append(f.Processes, paused...)
	f.Wait()
	for _, p := range f.Processes[others:] { // as many are left as before
		f.End(p)
	}
	f.Processes = f.Processes[:others]
}
