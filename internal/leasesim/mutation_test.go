package leasesim

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// update searches the seeds that show what each rule is for, and writes the README's table: go test
// ./internal/leasesim -run TestEveryRule -update.
var update = flag.Bool("update", false, "search seeds for the README's table, and write it")

const (
	readme      = "README.md"
	manySeeds   = 4000 // that are tried with a rule's own faults
	fewSeeds    = 60   // that are tried with one class of faults
	beginMarker = "<!-- table: go test ./internal/leasesim -run TestEveryRule -update -->\n"
	endMarker   = "<!-- end of the table -->\n"
)

// witness is a seed that breaks a promise when a rule is removed.
type witness struct {
	faults class
	seed   uint64
}

// config is what a mutation's witness runs.
func (m *mutation) config(w witness) config {
	return config{seed: w.seed, faults: w.faults, removed: m.rule, expect: m.breaks, ring: m.ring, bursts: m.bursts, length: length, trace: -1}
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
		return "none more"
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
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s | %d | %s |\n", m.name, m.says, m.gone, m.breaks, faults, where, own.seed, strings.Join(alone, ", "))
}

var rowOf = regexp.MustCompile("(?m)^\\| `(\\w+)` .* \\| (\\d+) \\| (.*) \\|$")

// recorded reads the witnesses from the table.
func (m *mutation) recorded(t *testing.T, text string) (all []witness) {
	t.Helper()
	for _, found := range rowOf.FindAllStringSubmatch(text, -1) {
		if found[1] != m.name {
			continue
		}
		number, _ := strconv.ParseUint(found[2], 10, 64)
		all = append(all, witness{m.faults, number})
		for cell := range strings.SplitSeq(found[3], ", ") {
			if cell == "" {
				continue
			}
			name, number, _ := strings.Cut(strings.TrimPrefix(cell, "none more "), " ")
			if number == "" {
				name, number = "", name
			}
			faults, err := classesNamed(name)
			if err != nil {
				t.Fatal(err)
			}
			seed, _ := strconv.ParseUint(number, 10, 64)
			all = append(all, witness{faults | everyday, seed})
		}
		return all
	}
	t.Fatalf("the README's table has no row %s", m.name)
	return nil
}

// TestEveryRuleIsNeeded removes each rule, and each assumption, and runs the seeds of the README's
// table: each breaks what the table says without the rule, and nothing with it. With -v it tells
// the history.
func TestEveryRuleIsNeeded(t *testing.T) {
	if *update {
		rewrite(t)
	}
	text := readTable(t)
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			all := m.recorded(t, text)
			if want := m.row(all); !strings.Contains(text, want) {
				t.Errorf("the README's row is another one than\n%s", want)
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
	c.removed, c.expect = 0, ""
	if s := run(c); s.check.violation != "" {
		t.Error(story(c, s))
	}
}

func readTable(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), beginMarker)
	table, _, ended := strings.Cut(rest, endMarker)
	if !found || !ended {
		t.Fatal("the README has no table")
	}
	return table
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
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), beginMarker)
	_, after, _ := strings.Cut(rest, endMarker)
	head := "| rule | it says | without it | what breaks | faults | worker ids | seed | one class suffices |\n|---|---|---|---|---|---|---|---|\n"
	if err := os.WriteFile(readme, []byte(before+beginMarker+head+strings.Join(rows, "")+endMarker+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
