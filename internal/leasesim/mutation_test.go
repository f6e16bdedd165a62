package leasesim

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// update searches the seeds that show what each rule is for, and writes the table of them: go test
// ./internal/leasesim -run TestEveryRule -update.
var update = flag.Bool("update", false, "search the seeds of "+ruleTable+", and write it")

const (
	ruleTable = "testdata/rules.tsv"
	columns   = "rule\tit says\twithout it\twhat breaks\tone class suffices\tfaults\tworker ids\tseed\n"
	manySeeds = 4000 // that are tried with a rule's own faults
	fewSeeds  = 10   // that are tried with one class of faults

	nothingMore = "none more" // than the everyday classes
)

// witness is a seed that breaks a promise when a rule is removed.
type witness struct {
	faults class
	seed   uint64
}

// config is what a mutation's witness runs.
func (m *mutation) config(w witness) config {
	return config{seed: w.seed, faults: w.faults, removed: without(m.rule), expect: m.breaks, ring: m.ring, bursts: m.bursts, durable: m.durable, length: length, trace: -1}
}

// search tries seeds until one breaks the promise.
func (m *mutation) search(faults class, seeds uint64) (w witness, found bool) {
	for seed := range seeds {
		w = witness{faults, seed + 1}
		if run(m.config(w)).check.violation != "" {
			return w, true
		}
	}
	return witness{}, false
}

// alone finds the classes of faults each of which suffices beside the everyday ones, or just those
// if they do.
func (m *mutation) alone() (all []witness) {
	if w, found := m.search(everyday, fewSeeds); found {
		return []witness{w}
	}
	for i := range classNames {
		if c := class(1) << i; c&everyday == 0 {
			if w, found := m.search(c|everyday, fewSeeds); found {
				all = append(all, w)
			}
		}
	}
	return all
}

// name is a class of faults as the table has it.
func (w witness) name() string {
	if w.faults == everyday {
		return nothingMore
	}
	return (w.faults &^ everyday).String()
}

// row is a mutation's line of the table. Its first witness is the one of its own faults.
func (m *mutation) row(all []witness) string {
	own, alone := all[0], []string{}
	for _, w := range all[1:] {
		alone = append(alone, fmt.Sprintf("%s %d", w.name(), w.seed))
	}
	where := strconv.Itoa(m.ring)
	if m.bursts {
		where += ", bursts"
	}
	faults := strings.ReplaceAll(own.faults.String(), ",", ", ")
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", m.name, m.says, m.gone, m.breaks, strings.Join(alone, ", "), faults, where, own.seed)
}

// recorded reads the witnesses from the table.
func (m *mutation) recorded(t *testing.T, table string) (all []witness) {
	t.Helper()
	_, row, _ := strings.Cut(table, "\n"+m.name+"\t")
	row, _, _ = strings.Cut(row, "\n")
	cells := strings.Split(row, "\t")
	if len(cells) != strings.Count(columns, "\t") {
		t.Fatalf("%s has no row %s with every column", ruleTable, m.name)
	}
	seed, _ := strconv.ParseUint(cells[6], 10, 64) // the last column
	all = append(all, witness{m.faults, seed})
	for cell := range strings.SplitSeq(cells[3], ", ") { // one class suffices
		if cell == "" {
			continue
		}
		name, number, _ := strings.Cut(strings.Replace(cell, nothingMore, "", 1), " ")
		faults, err := classesNamed(name)
		expect.NoError(t, "the classes of faults", err)
		seed, _ := strconv.ParseUint(number, 10, 64)
		all = append(all, witness{faults | everyday, seed})
	}
	return all
}

// TestEveryRuleIsNeeded removes each rule, and each assumption, and runs the seeds of the table:
// each breaks what the table says without the rule, and nothing with it. With -v it tells the
// history.
func TestEveryRuleIsNeeded(t *testing.T) {
	if *update {
		rewrite(t)
	}
	text, err := os.ReadFile(ruleTable)
	expect.NoError(t, "os.ReadFile", err)
	table := string(text)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			all := m.recorded(t, table)
			if want := m.row(all); !strings.Contains(table, "\n"+want) {
				t.Errorf("the row in %s is another one than\n%s", ruleTable, want)
			}
			for i, w := range all {
				m.replay(t, w, i == 0)
			}
		})
	}
}

func (m *mutation) replay(t *testing.T, w witness, tell bool) {
	t.Helper()
	c := m.config(w)
	s := run(c)
	if s.check.violation == "" {
		t.Errorf("nothing breaks without %s, with %v and seed %d", m.name, w.faults, w.seed)
		return
	}
	if tell {
		t.Log(story(c, s))
	}
	c.removed, c.expect = ruleSet{}, ""
	if s := run(c); s.check.violation != "" {
		t.Error(story(c, s))
	}
}

// rewrite searches all witnesses anew.
func rewrite(t *testing.T) {
	t.Helper()
	rows := make([]string, len(mutations))
	var group sync.WaitGroup
	for i, m := range mutations {
		group.Go(func() {
			own, found := m.search(m.faults, manySeeds)
			if !found {
				t.Errorf("no seed shows what %s is for", m.name)
				return
			}
			rows[i] = m.row(append([]witness{own}, m.alone()...))
		})
	}
	group.Wait()
	expect.NoError(t, "os.WriteFile", os.WriteFile(ruleTable, []byte(columns+strings.Join(rows, "")), 0o644))
}
