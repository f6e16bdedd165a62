//go:build nightly

package locks

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// The same processes use the locks of other libraries, and a hand-written SETNX lock. Redis loses
// everything, and two processes hold a lock. A long run tries every fault that our locks withstand.
func TestLocksOfOthersAreFoundToBeHeldTwice(t *testing.T) {
	t.Parallel()
	all := losses[:1]
	if chaostest.Proving() {
		all = slices.Concat(kinds, live, losses)
	}
	all = chaostest.Chosen(t, all)
	program := chaostest.BuildIn(t, "../peers")
	for _, peer := range []string{"naive", "redislock", "redsync", "rueidislock"} {
		t.Run(peer, func(t *testing.T) {
			t.Parallel()
			peers := program
			if peer == "naive" {
				peers = ""
			}
			f := newField(t, peers, peer, 0)
			f.Fill(*processes)
			found := f.playAll(all, 0)
			for again := 0; again < 10 && found.twice() == 0 && (!chaostest.Proving() || peer != "rueidislock"); again++ {
				f.Processes = nil // a loss while no client held for long shows nothing
				f.Fill(*processes)
				found = f.playAll(all, 0)
			}
			f.prove(found, nil)
			if line, is := f.timeline(found); is && peer == "redislock" {
				chaostest.ProveTimeline(t, line)
			}
			twice := found.twice()
			t.Logf("%d grants while another client believed to hold", twice)
			// rueidislock hears of it from Redis, soon
			if twice == 0 && peer != "rueidislock" {
				t.Error("nothing was found")
			}
		})
	}
}
