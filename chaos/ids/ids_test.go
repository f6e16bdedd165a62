package ids

import (
	"regexp"
	"syscall"
	"testing"
	"time"
)

// Whatever breaks, no id is stamped twice.
func TestNoIDIsStampedTwiceWhateverBreaks(t *testing.T) {
	wanted := regexp.MustCompile(*faults)
	f := newField(t, "leased")
	for round := range *rounds {
		order := f.lot.Perm(len(kinds))
		for _, i := range order {
			if !wanted.MatchString(kinds[i].name) {
				continue
			}
			t.Logf("round %d: %s", round+1, kinds[i].name)
			kinds[i].strike(f)
			f.wait()
		}
	}
	for _, p := range f.processes {
		p.finish()
	}
	found := check(t, f.folder)
	t.Log(found)
	if len(found.twice) > 0 || len(found.falling) > 0 {
		t.Errorf("%v\ntwice: %.10v\nout of order: %.10q", found, found.twice, found.falling)
	}
	if found.ids < 10_000 || len(found.workers) < 2 {
		t.Errorf("%v: too few to say anything", found)
	}
}

// The same processes with INCR, a mask and a key with a TTL stamp ids twice, and the check finds them: half of them are stopped for longer than their leases, as in the
// test above, others come, and they go on.
func TestMaskedCounterIsFoundToStampTwice(t *testing.T) {
	f := newField(t, "masked")
	paused := f.processes[:len(f.processes)/2]
	for _, p := range paused {
		p.signal(syscall.SIGSTOP)
	}
	time.Sleep(ttl + ttl/2)
	f.processes = f.processes[len(f.processes)/2:]
	for range paused {
		f.processes = append(f.processes, f.start())
	}
	f.wait()
	for _, p := range paused {
		p.signal(syscall.SIGCONT)
	}
	f.processes = append(f.processes, paused...)
	f.wait()
	for _, p := range f.processes {
		p.finish()
	}
	found := check(t, f.folder)
	t.Log(found)
	if len(found.twice) == 0 {
		t.Errorf("%v: nothing was found", found)
	}
}
