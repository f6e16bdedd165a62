package coatcheck_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// benchmarksPage is the home of all figures of speed and size. A command writes it.
const benchmarksPage = "docs/benchmarks.md"

var (
	benchmarksLink = regexp.MustCompile(`\[([^\]]*\d[^\]]*)\]\((?:[^)]*/)?benchmarks\.md#([^)]+)\)`)
	aNumber        = regexp.MustCompile(`\d+(?:,\d{3})*(?:\.\d+)?`)
	sectionHead    = regexp.MustCompile(`(?m)^## `)
	// what only a measurement tells.
	aSpeed = regexp.MustCompile(`\d ?(?:µs|ns|microseconds|nanoseconds)\b|\d (?:requests|calls|pairs|locks)(?:/s| a second)|\d times (?:as (?:fast|many|much|often|quick)|faster|slower)`)
)

// A document that cites a figure links it to the section that has it:
// [1,270](benchmarks.md#memory).
func TestFiguresThatDocumentsCiteAreThoseOfTheBenchmarks(t *testing.T) {
	page, err := os.ReadFile(benchmarksPage)
	expect.NoError(t, "os.ReadFile", err)
	cited := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		links, faults := citesOf(string(text), string(page))
		cited += links
		for _, fault := range faults {
			t.Errorf("%s: %s", name, fault)
		}
	}
	if cited == 0 {
		t.Error("no document cites a figure: does this test still read them?")
	}
}

// citesOf counts the links of a text to sections of a page that cite figures, and names the figures
// that do not stand there.
func citesOf(text, page string) (links int, faults []string) {
	sections := map[string][]string{}
	for _, section := range sectionHead.Split(page, -1)[1:] {
		head, body, _ := strings.Cut(section, "\n")
		sections[strings.ToLower(head)] = aNumber.FindAllString(body, -1)
	}
	for _, match := range benchmarksLink.FindAllStringSubmatch(text, -1) {
		links++
		for _, number := range aNumber.FindAllString(match[1], -1) {
			if !stands(number, sections[match[2]]) {
				faults = append(faults, fmt.Sprintf("cites %s, which is no figure of %s#%s", number, benchmarksPage, match[2]))
			}
		}
	}
	return links, faults
}

// stands reports whether one of the figures is a number, within a tenth of it, by which runs
// differ.
func stands(number string, figures []string) bool {
	value := func(text string) float64 {
		value, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
		if err != nil {
			return math.NaN()
		}
		return value
	}
	return slices.ContainsFunc(figures, func(figure string) bool { return math.Abs(value(figure)/value(number)-1) <= 0.1 })
}

// Elsewhere no document and no comment has a figure of speed that no command measures.
func TestFiguresOfSpeedStandInTheBenchmarksAlone(t *testing.T) {
	for _, name := range append(walk(t, ".md"), walk(t, ".go")...) {
		folder, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		read := markdownProse
		switch {
		case name == benchmarksPage, name == filepath.Join("docs", "proof.md"), name == "CHANGELOG.md", folder == "chaos", folder == "tools", strings.HasSuffix(name, "_test.go"):
			continue
		case strings.HasSuffix(name, ".go"):
			read = goProse
		}
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		for _, line := range read(string(text)) {
			if found := aSpeed.FindString(benchmarksLink.ReplaceAllString(line.text, "")); found != "" {
				t.Errorf("%s:%d: %q: cite %s, or leave it out", name, line.line, found, benchmarksPage)
			}
		}
	}
}

func TestCitedFiguresAreCompared(t *testing.T) {
	const page = "# Benchmarks\n\n1.5\n\n## memory\n\n| 187 | 1268 | 0.95 |\n\n## locks\n\n| 3.14 × |\n"
	for text, want := range map[string]int{
		"[190, 1,270](benchmarks.md#memory)":                0,
		"[187 bytes](docs/benchmarks.md#memory)":            0,
		"[1,268](../docs/benchmarks.md#memory)":             0,
		"[3 times](benchmarks.md#locks)":                    0,
		"[memory](benchmarks.md#memory), [2](keys.md#head)": 0,
		"[210 bytes](benchmarks.md#memory)":                 1,
		"[1,450](benchmarks.md#memory)":                     1,
		"[0.8](benchmarks.md#memory)":                       1,
		"[190](benchmarks.md#locks), [3](benchmarks.md#x)":  2,
		"[1.5](benchmarks.md#memory)":                       1,
		"[300, 400](benchmarks.md#memory)":                  2,
	} {
		if _, faults := citesOf(text, page); len(faults) != want {
			t.Errorf("%s: got %q, want %d faults", text, faults, want)
		}
	}
}
