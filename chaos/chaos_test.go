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
	total, struck, valid := &tally{}, 0, 0
	pace := measure(t, r, lot)
	for n := range *chaostest.Rounds {
		for i, kind := range kinds {
			if !wanted(kind.name) || kind.all && *ack < 2 && *chaostest.Faults == "" {
				continue
			}
			for again := range 4 {
				began := time.Now()
				s := &scene{history: &history{}, t: t, rig: r, web: web(t), lot: lot, fault: kind, name: fmt.Sprintf("r%df%da%d", n, i, again)}
				s.play(pace)
				found := s.judge()
				total.add(s, found)
				t.Logf("round %d: %s, %s: %s (%v)", n+1, kind.name, s.moment, s.summary(), time.Since(began).Round(10*time.Millisecond))
				if t.Failed() && !*goOn {
					t.FailNow()
				}
				if !s.void {
					valid++
					break
				}
				r.watch.Hesitate(t) // and once more
			}
			struck++
		}
	}
	t.Logf("in all:\n%s", total)
	chaostest.Prove(t, total.rows(evidence.Ours, false)...)
	if struck-valid > 2+struck/10 {
		t.Errorf("%d of %d rounds are void again and again: this machine is too slow for a Sentinel that waits for %v", struck-valid, struck, r.watch.Patience)
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
