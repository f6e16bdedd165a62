//go:build check

package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// TestNothingRunsTwiceWhateverBreaks breaks each thing in each round at another moment.
func TestNothingRunsTwiceWhateverBreaks(t *testing.T) {
	wanted := chaostest.Wanted(t)
	lot := chaostest.NewLot(t)
	r := newRig(t)
	total := &tally{}
	pace := measure(t, r, lot)
	for n := range *chaostest.Rounds {
		for i, kind := range kinds {
			if !wanted(kind.name) || kind.all && *ack < 2 && *chaostest.Faults == "" {
				continue
			}
			began := time.Now()
			s := &scene{history: &history{}, t: t, rig: r, web: web(t), lot: lot, fault: kind, name: fmt.Sprintf("r%df%d", n, i)}
			s.play(pace)
			found := s.judge()
			total.add(s, found)
			t.Logf("round %d: %s, %s: %s (%v)", n+1, kind.name, s.moment, s.summary(), time.Since(began).Round(10*time.Millisecond))
			if t.Failed() && !*goOn {
				t.Log(r.complaints())
				t.FailNow()
			}
		}
	}
	t.Logf("in all:\n%s", total)
	chaostest.Prove(t, total.rows(evidence.Ours, false)...)
	if total.void > 2+total.faults/10 {
		t.Errorf("%d of %d rounds are void: this machine is too slow for a Sentinel that waits for %v", total.void, total.faults, downAfter)
	}
}

// measure returns how long requests take under load when nothing is broken. A round without a fault
// has to keep all rules, too.
func measure(t *testing.T, r *rig, lot *rand.Rand) time.Duration {
	nothing := fault{name: "nothing", doors: atBoth, hits: everyOne, strike: func(*scene) func() { return func() {} }}
	s := &scene{history: &history{}, t: t, rig: r, web: web(t), lot: lot, fault: nothing, name: "warm"}
	began := time.Now()
	s.play(0)
	s.judge()
	longest := time.Duration(0)
	for _, o := range s.orders {
		for _, a := range s.of(o.name) {
			if a.sent.Sub(began) < 5*time.Second && a.code == "" && !a.replayed {
				longest = max(longest, a.got.Sub(a.sent))
			}
		}
	}
	t.Logf("with nothing broken a request takes up to %v", longest.Round(time.Millisecond))
	return longest
}
