package main

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var update = flag.Bool("update", false, "write the golden page and picture")

// before has the tables that chaos/prices wrote.
const before = "x\n<!-- prices of outages -->\n| a | 1.5 |\n<!-- end of prices of outages -->\ny\n"

func counted(t *testing.T) []evidence.Line {
	t.Helper()
	file, err := os.Open("testdata/counted.jsonl")
	expect.NoError(t, "os.Open testdata/counted.jsonl", err)
	defer file.Close()
	lines, err := evidence.Read(file)
	expect.NoError(t, "evidence.Read", err)
	return lines
}

// The page and the picture say what was counted, and a page that is written over keeps its prices.
func TestPageIsTheGoldenOne(t *testing.T) {
	page, picture := render(counted(t), before)
	for name, got := range map[string]string{"testdata/page.golden": page, "testdata/picture.golden": picture} {
		if *update {
			expect.NoError(t, "os.WriteFile", os.WriteFile(name, []byte(got), 0o600))
		}
		want, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Every number in the tables of a page comes from the file: with all numbers changed there, none of
// the old ones is left.
func TestNumbersComeFromWhatWasCounted(t *testing.T) {
	lines := counted(t)
	for i := range lines {
		if row := lines[i].Row; row != nil {
			row.Faults, row.Operations, row.Violations, row.Seed = 4444, 4444, 4444, 4444
		}
		if one := lines[i].Case; one != nil {
			for at := range one.Cells {
				one.Cells[at] = "4444"
			}
		}
	}
	page, _ := render(lines, "")
	_, tables, _ := strings.Cut(page, "\n## ")
	for line := range strings.SplitSeq(tables, "\n") {
		for _, number := range regexp.MustCompile(`[\d,]*\d`).FindAllString(line, -1) {
			n, err := strconv.Atoi(strings.ReplaceAll(number, ",", ""))
			if err == nil && strings.HasPrefix(line, "|") && n%4444 > 0 {
				t.Errorf("%s in %q comes from elsewhere", number, line)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	expect.NoError(t, "os.ReadFile", err)
	return string(text)
}

// The page in docs says of every promise that it was kept here, and that one other at least did not
// keep it.
func TestThePageOfTheTreeIsComplete(t *testing.T) {
	page, guarantees := read(t, "../../docs/proof.md"), read(t, "../../docs/guarantees.md")
	for _, fault := range missing(page, guarantees) {
		t.Errorf("docs/proof.md: %s", fault)
	}
	sections := strings.Count(page, totalRow)
	if sections != len(promises) {
		t.Errorf("%d tables, want %d", sections, len(promises))
	}
	for _, row := range []struct{ what, old, new string }{
		{"a promise is not there", "\n## Segments\n", "\n## Others\n"},
		{"something came twice over an upgrade", " | 0 |\n| sentinel |", " | 1 |\n| sentinel |"},
		{"no engine was tried", "\n## Engines\n", "\n## Others\n"},
		{"a step failed", "| passed |", "| " + failed + " |"},
		{"all of ours are broken", "**0** |", "**1** |"},
		{"no peer is broken", "", ""},
		{"a doubt has stayed", " | 0 | 0 | 0 | 0 |\n| `coatcheck once`", " | 1 | 0 | 0 | 0 |\n| `coatcheck once`"},
	} {
		spoiled := strings.ReplaceAll(page, row.old, row.new)
		if row.old == "" {
			spoiled = regexp.MustCompile(`\*\*[\d,]+\*\* \|`).ReplaceAllString(page, "**0** |")
		}
		if len(missing(spoiled, guarantees)) == 0 {
			t.Errorf("%s, and it was not found", row.what)
		}
	}
}

var (
	promised = regexp.MustCompile(`(?m)^## ([A-Z][a-z ]+?)(?::.*)?$`)
	attacked = regexp.MustCompile(`(?m)^\| ([a-z ]+) \|`)
	violated = regexp.MustCompile(`\*\*([\d,]+)\*\*$`)
)

// missing is what a page does not say, or says of ours.
func missing(page, guarantees string) (found []string) {
	if strings.Contains(page, failed) {
		found = append(found, "a step failed")
	}
	body, others, _ := strings.Cut(guarantees, "\n## Where the others are attacked\n")
	var names []string
	for _, match := range promised.FindAllStringSubmatch(body, -1) {
		if match[1] != "How a loss is noticed" { // it is what the promises after it rest on
			names = append(names, match[1])
		}
	}
	for _, match := range attacked.FindAllStringSubmatch(others, -1) {
		name := map[string]string{"tokens": evidence.Tokens}[match[1]]
		if name == "" {
			name = capital(match[1])
		}
		if !slices.Contains(names, name) && name != "Promise" {
			names = append(names, name)
		}
	}
	if len(names) < len(promises) {
		found = append(found, "guarantees.md has only "+strings.Join(names, ", "))
	}
	for _, name := range names {
		_, section, is := strings.Cut(page, "\n## "+name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		if !is {
			found = append(found, "no section is called "+name)
			continue
		}
		found = append(found, judged(name, section)...)
	}
	return append(found, unlike(page)...)
}

// unlike is what the tables of cases do not say, or say of what came twice.
func unlike(page string) (found []string) {
	for _, kind := range cases {
		_, section, _ := strings.Cut(page, "\n## "+kind.name+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		_, rows, is := strings.Cut(section, "| "+strings.Join(kind.columns, " | ")+" |\n")
		if !is || strings.Count(rows, "\n") < 4 {
			found = append(found, kind.name+": nothing was tried")
		}
		for row := range strings.Lines(rows) {
			last := kind.columns[len(kind.columns)-1] == "twice"
			resolved := kind.name == evidence.Resolvers && strings.Contains(row, " | yes | ")
			if last && strings.HasPrefix(row, "| ") && !strings.HasSuffix(row, " | 0 |\n") ||
				resolved && !strings.HasSuffix(row, " | 0 | 0 | 0 | 0 |\n") {
				found = append(found, kind.name+": "+row)
			}
		}
	}
	return found
}

// judged is what is wrong with the last row of a section's table.
func judged(name, section string) (found []string) {
	_, header, _ := strings.Cut(section, "| fault |")
	header, _, _ = strings.Cut(header, "\n")
	_, total, is := strings.Cut(section, "| "+totalRow+" |")
	if !is {
		return []string{name + " has no table"}
	}
	total, _, _ = strings.Cut(total, "\n")
	whos, cells := strings.Split(header, "|"), strings.Split(total, "|")
	ours, broken := 0, false
	for i := range min(len(whos), len(cells)) {
		match := violated.FindStringSubmatch(strings.TrimSpace(cells[i]))
		if match == nil {
			continue
		}
		switch {
		case !strings.HasPrefix(strings.TrimSpace(whos[i]), evidence.Ours):
			broken = broken || match[1] != "0"
		case match[1] != "0":
			found = append(found, name+": "+match[1]+" violations of ours")
		default:
			ours++
		}
	}
	if ours == 0 {
		found = append(found, name+": nothing of ours was counted")
	}
	if !broken {
		found = append(found, name+": no peer was found to break")
	}
	return found
}
