package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const benchmarksPage = "../docs/benchmarks.md"

var anAmount = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)

// The page is one that this program would write: the same questions and goals in the same order,
// verdicts that follow from the figures, and above no figure that does not stand below. A section
// that is newer than the run says so, and has no figures.
func TestPageIsOneOfThisProgram(t *testing.T) {
	text, err := os.ReadFile(benchmarksPage)
	expect.Error(t, "reading the page", err, nil)
	page := string(text)
	top, below, _ := strings.Cut(page, "\n"+targetsHead)
	goals, _, _ := strings.Cut(below, "\n"+pageMethod)

	measured := func(section string) bool { return !strings.Contains(sectionOf(page, section), notInThisRun) }

	asked := rowsOf(top)
	questions := slices.DeleteFunc(slices.Clone(answers), func(a answer) bool { return !measured(a.section) })
	expect.MustEqual(t, "the number of questions", len(asked), len(questions))
	for i, a := range questions {
		row := asked[i]
		expect.Equal(t, "a question", row[0], "["+a.asked+"](#"+a.section+")")
		expect.Contains(t, "the answer to "+a.asked, row[1], " "+a.unit)
		for _, amount := range anAmount.FindAllString(strings.TrimPrefix(row[1]+" "+row[2], a.called), -1) {
			if figures := sectionOf(page, a.section); !strings.Contains(figures, "| "+strings.ReplaceAll(amount, ",", "")+" |") {
				t.Errorf("%s: %s is no figure of the section %s", a.asked, amount, a.section)
			}
		}
	}

	counts := map[string]int{}
	rows := rowsOf(goals)
	expect.MustEqual(t, "the number of targets", len(rows), len(targets))
	for i, target := range targets {
		row := rows[i]
		expect.Equal(t, "a target", row[0], "["+target.what+"](#"+target.section+")")
		expect.Equal(t, "the goal of "+target.what, row[1], target.goalText())
		counts[row[4]]++
		if !measured(target.section) {
			expect.Equal(t, "the figure of "+target.what, strings.Join(row[2:], "|"), "–||"+notMeasured)
			continue
		}
		value, err := strconv.ParseFloat(anAmount.FindString(row[2]), 64)
		if err != nil {
			t.Errorf("%s: %q is no figure", target.what, row[2])
		}
		expect.Equal(t, "the verdict on "+target.what, row[4], target.judge(value))
		if row[4] == notMet {
			expect.Contains(t, "the reasons", goals, "Why not, in ["+target.section+"](#"+target.section+"): ")
		}
	}
	expect.Contains(t, "the targets", goals, fmt.Sprintf("Met: %d. Not met: %d. Not measured: %d.", counts[met], counts[notMet], counts[notMeasured]))
	for _, step := range steps {
		want := step.about + " Rounds: "
		if !measured(step.name) {
			want = step.about + " " + notInThisRun
		}
		expect.Contains(t, "the section "+step.name, strings.Join(strings.Fields(sectionOf(page, step.name)), " "), want)
	}
}

// rowsOf are the cells of a table's rows.
func rowsOf(text string) (rows [][]string) {
	for line := range strings.Lines(text) {
		if row, ok := strings.CutPrefix(line, "| ["); ok {
			rows = append(rows, strings.Split("["+strings.TrimSuffix(row, " |\n"), " | "))
		}
	}
	return rows
}

// sectionOf is a section of the page.
func sectionOf(page, name string) string {
	_, section, _ := strings.Cut(page, "\n## "+name+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}
