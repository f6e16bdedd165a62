//go:build check

package leasesim

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var proofFile = flag.String("proof", "", "append what is counted to this file, for docs/proof.md")

// sides are the protocol, and what others do: worker ids with a plain TTL, whose holder's deadline
// alone decides, and fences that are one more than the last.
var sides = []struct {
	promise, who string
	removed      rule
	breach       breach
}{
	{evidence.WorkerIDs, evidence.Ours, 0, ""},
	{evidence.WorkerIDs, "a TTL alone", windowInID, repeat},
	{evidence.Fences, evidence.Ours, 0, ""},
	{evidence.Fences, "one more than the last fence", fenceOfTime, order},
}

// TestProtocolBesideOthers runs all sides with the same seeds of mixed faults. A run ends with its
// first violation.
func TestProtocolBesideOthers(t *testing.T) {
	for _, side := range sides {
		t.Run(side.promise+" by "+side.who, func(t *testing.T) {
			t.Parallel()
			row := evidence.Row{
				Suite: "leasesim", Promise: side.promise, Who: side.who, Peer: side.removed != 0, Layer: evidence.Simulated,
				Fault: "failovers, splits, losses, restarts and clocks, drawn by lot", Seed: *seed,
			}
			for i := range uint64(*rounds) {
				drawn := *seed + i + 1
				rnd := rand.New(rand.NewPCG(drawn, 0))
				c := config{seed: drawn, faults: class(rnd.Uint64())&everyFault | flush, ring: 4, bursts: rnd.IntN(2) == 0, removed: without(side.removed), expect: side.breach, length: length, trace: -1}
				s := run(c)
				row.Faults += s.made
				row.Operations += map[bool]int64{true: s.check.stamped, false: s.check.confirmed}[side.promise == evidence.WorkerIDs]
				if s.check.violation == "" {
					continue
				}
				row.Violations++
				if side.removed == 0 {
					t.Error(story(c, s))
				}
			}
			if side.removed != 0 && row.Violations == 0 {
				t.Error("nothing was found")
			}
			t.Logf("%+v", row)
			if *proofFile == "" {
				return
			}
			expect.Error(t, "evidence.Append", evidence.Append(*proofFile, evidence.Line{Row: &row}), nil)
		})
	}
}
