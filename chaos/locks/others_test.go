//go:build nightly

package locks

import (
	"slices"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// The same processes with the locks of other libraries, and with the one that many have written:
// everything that is in Redis is lost, and two hold. At length all faults strike that ours stand.
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
