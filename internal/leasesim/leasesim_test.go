package leasesim

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var (
	rounds  = flag.Int("rounds", usual, "how many seeds of mixed faults; of other tests accordingly more or fewer")
	seed    = flag.Uint64("seed", 0, "the only seed for TestOne; the one before the first for TestProtocolHoldsUnderMixedFaults")
	ring    = flag.Int("ring", maxSlots, "worker ids of the pool, for TestOne")
	durable = flag.Bool("durable", false, "whatever a server has is on its disk at once, for TestOne")
	bursts  = flag.Bool("bursts", false, "faults come close together, for TestOne")
	remove  = flag.String("remove", "", "the rules to remove, for TestOne: names of "+ruleTable+", with commas between")
	faults  = flag.String("faults", "all", "the classes of faults, for TestOne: names of the README's table, with commas between")
)

const (
	full   = 60 // rounds, of which other numbers of seeds are a part
	length = 20_000
)

// scaled is a number of seeds when there are the full rounds.
func scaled(seeds int) int { return max(1, seeds**rounds/full) }

// total is what several runs did.
type total struct{ steps, stamped, confirmed int64 }

func (t *total) add(s *sim) {
	t.steps += s.steps
	t.stamped += s.check.stamped
	t.confirmed += s.check.confirmed
}

func (t *total) String() string {
	return fmt.Sprintf("%d steps, %d stamps, %d confirmed grants", t.steps, t.stamped, t.confirmed)
}

// rerun is the command that shows a run again.
func (c config) rerun() string {
	command := fmt.Sprintf("go test ./internal/leasesim -run TestOne -seed %d -ring %d -faults '%v'", c.seed, c.ring, c.faults)
	if c.bursts {
		command += " -bursts"
	}
	if c.durable {
		command += " -durable"
	}
	if c.removed != (ruleSet{}) {
		command += fmt.Sprintf(" -remove %v", c.removed)
	}
	return command
}

// story is the end of the history of a run that failed, as far as it concerns the worker id with
// which it failed.
func story(c config, s *sim) string {
	c.trace = s.check.worker
	h := run(c).history
	if len(h) > 60 {
		h = h[len(h)-60:]
	}
	return fmt.Sprintf("%s: %s\n%s\nttl %d, S %d, %d servers, worker id %d; milliseconds of true time\n%s",
		s.check.breach, s.check.violation, c.rerun(), s.ttl, s.skew, len(s.servers), c.trace, strings.Join(h, "\n"))
}

// holds runs configurations and expects that no promise breaks.
func holds(t *testing.T, seeds int, configured func(seed uint64) config) {
	t.Helper()
	var sum total
	for i := range seeds {
		c := configured(uint64(i) + 1)
		c.length, c.trace = length, -1
		s := run(c)
		sum.add(s)
		if s.check.violation != "" {
			t.Fatal(story(c, s))
		}
	}
	if sum.stamped == 0 {
		t.Error("nothing was stamped")
	}
	t.Logf("%d seeds, %v", seeds, &sum)
}

// TestProtocolHoldsUnderEveryFault runs all classes of faults together, on the ring of sixteen and
// on a small one, where a worker id changes hands more often.
func TestProtocolHoldsUnderEveryFault(t *testing.T) {
	for _, ring := range []int{maxSlots, 4} {
		t.Run(fmt.Sprint(ring), func(t *testing.T) {
			t.Parallel()
			holds(t, scaled(12), func(seed uint64) config { return config{seed: seed, faults: everyFault, ring: ring} })
		})
	}
}

// TestProtocolHoldsUnderMixedFaults draws the classes of faults, about half of them each time, the
// size of the ring, and whether faults come close together.
func TestProtocolHoldsUnderMixedFaults(t *testing.T) {
	t.Parallel()
	holds(t, *rounds, func(i uint64) config {
		drawn := *seed + i
		rnd := rand.New(rand.NewPCG(drawn, 0))
		return config{seed: drawn, faults: class(rnd.Uint64()) & everyFault, ring: []int{1, 2, 4, maxSlots}[rnd.IntN(4)], bursts: rnd.IntN(2) == 0}
	})
}

// TestProtocolHoldsUnderOneFault runs each class of faults by itself, with clients that pause,
// messages that are lost, late or executed twice, and churn.
func TestProtocolHoldsUnderOneFault(t *testing.T) {
	for i, name := range classNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faults := class(1)<<i | everyday
			if faults&noID != 0 {
				if s := run(config{seed: 1, faults: faults, ring: 4, length: length, trace: -1}); s.check.confirmed > 0 {
					t.Errorf("%d grants of a server without an incarnation", s.check.confirmed)
				}
				return
			}
			holds(t, scaled(1), func(seed uint64) config { return config{seed: seed, faults: faults, ring: maxSlots} })
			holds(t, scaled(3), func(seed uint64) config { return config{seed: seed, faults: faults, ring: 4} })
		})
	}
}

// TestClientsThatAskForTwoTTLs has half of the clients ask for another TTL than the rest, under all
// faults, those that leave nothing of the pool among them.
func TestClientsThatAskForTwoTTLs(t *testing.T) {
	t.Parallel()
	holds(t, scaled(10), func(seed uint64) config {
		faults := class(rand.New(rand.NewPCG(seed, 0)).Uint64())&everyFault | twoTTLs
		return config{seed: seed, faults: faults, ring: 4}
	})
}

// TestFewerAcknowledgements has half of the clients, or all, grant what nobody confirms, under all
// faults but splits: there both sides would grant (A1).
func TestFewerAcknowledgements(t *testing.T) {
	t.Parallel()
	holds(t, scaled(20), func(seed uint64) config {
		rnd := rand.New(rand.NewPCG(seed, 0))
		return config{
			seed: seed, faults: class(rnd.Uint64())&everyFault&^splits | fewerAcks, durable: rnd.IntN(2) == 0,
			ring: []int{1, 4, maxSlots}[rnd.IntN(3)], bursts: rnd.IntN(2) == 0,
		}
	})
}

// TestNoTokenIsClaimedTwice has clients claim tokens, which no word is noted beside, under all
// promotions that lose nothing. What a server has is on its disk.
func TestNoTokenIsClaimedTwice(t *testing.T) {
	t.Parallel()
	holds(t, scaled(30), func(seed uint64) config {
		rnd := rand.New(rand.NewPCG(seed, 0))
		return config{seed: seed, faults: class(rnd.Uint64())&promotions | everyday | tokens, durable: true, ring: 4, bursts: rnd.IntN(2) == 0}
	})
}

// TestWhatLosesNothingCostsNothing: no pool that all confirm is quarantined by a failover to a
// replica in step or by a copy that is made; nor is that of one server by a restart, where all is
// on disk. Two promotions without a call between are a loss, so faults are far apart.
func TestWhatLosesNothingCostsNothing(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		faults  class
		durable bool
	}{
		{"failover", failover, false},
		{"renames", renames, false},
		{"restartWhole", restartWhole | alone, true},
		{"restartOld", restartOld | alone, true},
	} {
		holds(t, scaled(10), func(seed uint64) config {
			c := config{seed: seed, faults: row.faults | shapes | churn, durable: row.durable, gentle: true, ring: 4, length: length, trace: -1}
			if s := run(c); s.losses > 0 || s.made == 0 {
				t.Errorf("%s, seed %d: %d losses noticed after %d faults, want none after some", row.name, seed, s.losses, s.made)
			}
			return c
		})
	}
}

// TestTrustedRestartsHoldWhereNoneLosesAnything trusts restarts where every server has all that it
// confirmed on its disk, under all faults.
func TestTrustedRestartsHoldWhereNoneLosesAnything(t *testing.T) {
	t.Parallel()
	holds(t, scaled(20), func(seed uint64) config {
		rnd := rand.New(rand.NewPCG(seed, 0))
		return config{
			seed: seed, faults: class(rnd.Uint64())&everyFault | restartWhole, removed: without(restartDoubted), durable: true,
			ring: []int{1, 4, maxSlots}[rnd.IntN(3)], bursts: rnd.IntN(2) == 0,
		}
	})
}

// TestOne runs one seed, as a failure's command has it, and tells its history.
func TestOne(t *testing.T) {
	removed, err := rulesNamed(*remove)
	expect.NoError(t, "the rules to remove", err)
	classes, err := classesNamed(*faults)
	expect.NoError(t, "the classes of faults", err)
	c := config{seed: max(*seed, 1), faults: classes, removed: removed, ring: *ring, bursts: *bursts, durable: *durable, length: length, trace: -1}
	if s := run(c); s.check.violation != "" {
		t.Fatal(story(c, s))
	}
}

// TestReadmeNamesEveryFault keeps the README's list complete.
func TestReadmeNamesEveryFault(t *testing.T) {
	text, err := os.ReadFile("README.md")
	expect.NoError(t, "os.ReadFile", err)
	for i, name := range classNames {
		if !strings.Contains(string(text), "| `"+name+"`") && !strings.Contains(string(text), ", `"+name+"` |") {
			t.Errorf("no row of the README is about %s", name)
		}
		if c, err := classesNamed(name); err != nil || c != 1<<i {
			t.Errorf("%s is class %d: %v", name, c, err)
		}
	}
	expect.Equal(t, "the classes that have a name", class(1)<<len(classNames), classes)
}

// TestEveryRuleHasARow keeps the table complete.
func TestEveryRuleHasARow(t *testing.T) {
	found := map[rule]bool{}
	for _, m := range mutations {
		if got, err := rulesNamed(m.name); err != nil || got != without(m.rule) || found[m.rule] {
			t.Errorf("%s is rule %d: %v", m.name, got, err)
		}
		found[m.rule] = true
	}
	for r := rule(1); r < rules; r++ {
		if !found[r] {
			t.Errorf("rule %d has no row", r)
		}
	}
}
