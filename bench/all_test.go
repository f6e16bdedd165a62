package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// madeUp is a section with samples of two sides, of which the second has 10, 20 and 40.
func madeUp(first ...float64) section {
	s := section{Name: "guard", Command: "guard -rounds 3", Took: 7, Table: table{Title: "guard", Rounds: 3, Seconds: 0.5, Columns: []string{"side"}, Rows: [][]any{{"one"}}}}
	s.Table.keep("connections: 64", coatcheck, perSecond, first)
	s.Table.keep("connections: 64", unguarded, perSecond, []float64{10, 20, 40})
	return s
}

func TestTargetsAreMetOrNotByTheSamples(t *testing.T) {
	ratio := target{what: "x", section: "guard", series: "connections: 64", unit: perSecond, side: coatcheck, beside: unguarded}
	value := target{what: "x", section: "guard", series: "connections: 64", unit: perSecond, side: coatcheck}
	with := func(t target, goal float64, most bool) target { t.goal, t.most = goal, most; return t }
	missing := ratio
	missing.beside, missing.absent = webdisService, true
	elsewhere := ratio
	elsewhere.section = "locks"
	for name, row := range map[string]struct {
		target target
		want   string // the end of the row
	}{
		"enough":            {with(ratio, 1.5, false), "| ≥ 1.5 × | 1.50 × | 1.25–3.00 | met |"},
		"too little":        {with(ratio, 1.51, false), "| ≥ 1.51 × | 1.50 × | 1.25–3.00 | **not met** |"},
		"little enough":     {with(ratio, 1.5, true), "| ≤ 1.5 × | 1.50 × | 1.25–3.00 | met |"},
		"too much":          {with(ratio, 1.49, true), "| ≤ 1.49 × | 1.50 × | 1.25–3.00 | **not met** |"},
		"a value":           {with(value, 30, false), "| ≥ 30 requests/s | 50.0 requests/s | 15.0–60.0 | met |"},
		"no goal":           {ratio, "| – | 1.50 × | 1.25–3.00 | shown |"},
		"not installed":     {missing, "| – | – |  | not measured |"},
		"another section's": {with(elsewhere, 1, false), "| ≥ 1 × | – |  | not measured |"},
	} {
		// 1.5, 3 and 1.25 times
		figures, err := judgeTargets([]target{row.target}, []section{madeUp(15, 60, 50)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if text := targetsText(figures); !strings.Contains(text, row.want+"\n") {
			t.Errorf("%s: got %s, want a row that ends in %s", name, text, row.want)
		}
	}
	for goal, want := range map[float64]string{1.5: "", 2: "\nWhy not, in [guard](#guard): The two scripts of a first request"} {
		figures, err := judgeTargets([]target{with(ratio, goal, false), with(ratio, goal, false)}, []section{madeUp(15, 60, 50)})
		expect.Error(t, "judging two targets", err, nil)
		if got := whyNot(figures); !strings.HasPrefix(got, want) || strings.Count(got, "Why not") != min(len(want), 1) {
			t.Errorf("reasons with a goal of %g: got %q, want %q … once", goal, got, want)
		}
	}
	missing.absent = false
	if _, err := judgeTargets([]target{missing}, []section{madeUp(1, 2, 3)}); err == nil || !strings.Contains(err.Error(), webdisService) {
		t.Errorf("a side that is not there: got %v, want an error that names it", err)
	}
}

func TestPageSaysHowItWasMeasured(t *testing.T) {
	r := &report{
		When: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC), Took: 61, Machine: "2 processors (a model)", Versions: []string{"redis/go-redis/v9 v9.0.0"},
		Load: [2]string{"0.50", "1.50"}, Sections: []section{madeUp(5, 30, 20)},
	}
	figures, err := judgeTargets(nil, r.Sections)
	expect.Error(t, "judging nothing", err, nil)
	for name, row := range map[string]struct {
		quick bool
		says  bool
	}{"a whole run": {false, false}, "a quick look": {true, true}} {
		r.Quick = row.quick
		page := strings.Join(strings.Fields(r.page("", figures)), " ")
		for _, want := range []string{
			"on 2026-11-25 at 12:00 UTC, in 1m1s, on 2 processors (a model)", "0.50 at the begin and 1.50 at the end", "redis/go-redis/v9 v9.0.0",
			"## guard", "Rounds: 3 of 0.5 s each, 7 s in all: `go run . guard -rounds 3`.", "| side | |---| | one |",
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the page does not say %q: %s", name, want, page)
			}
		}
		if strings.Contains(page, "a quick look") != row.says {
			t.Errorf("%s: the page says that it is a quick look: %v", name, !row.says)
		}
	}
}

func TestAStepThatFailsEndsNoOther(t *testing.T) {
	good := madeUp(15, 60, 50)
	fault := errors.New("Redis went away")
	r, err := measureAll(t.Context(), []step{
		{name: "locks", run: func(context.Context, []string, io.Reader, io.Writer) error { return fault }},
		{name: "guard", run: func(_ context.Context, _ []string, _ io.Reader, stdout io.Writer) error {
			return (&output{}).write(stdout, &good.Table)
		}},
	}, true)
	expect.Error(t, "measuring with a step that fails", err, fault)
	goal := target{what: "x", section: "guard", series: "connections: 64", unit: perSecond, side: coatcheck, beside: unguarded, goal: 1}
	failed := goal
	failed.section = "locks"
	figures, err := judgeTargets([]target{goal, failed}, r.Sections)
	expect.Error(t, "judging what was measured", err, nil)
	expect.Equal(t, "the verdict on what was measured", figures[0].verdict, met)
	expect.Equal(t, "the verdict on what failed", figures[1].verdict, notMeasured)
	expect.Contains(t, "the page", r.page("", figures), "**Not measured**, it failed:\n\n```\nRedis went away\n```", "| side |")
}

// The steps give the samples that the targets and the answers name, or the command fails.
func TestAllMeasuresWhatTheTargetsName(t *testing.T) {
	var names []string
	for _, step := range steps {
		named := func(section string) bool { return section == step.name }
		if slices.ContainsFunc(targets, func(t target) bool { return named(t.section) }) || slices.ContainsFunc(answers, func(a answer) bool { return named(a.section) }) {
			names = append(names, step.name)
		}
	}
	file, page := filepath.Join(t.TempDir(), "all.json"), filepath.Join(t.TempDir(), "page.md")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"all", "-quick", "-only", strings.Join(names, ","), "-json", file, "-page", page}, nil, &stdout, &stderr); code != done {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	text, err := os.ReadFile(file)
	expect.Error(t, "reading what was measured", err, nil)
	var r report
	expect.Error(t, "reading it as JSON", json.Unmarshal(text, &r), nil)
	expect.Equal(t, "the number of sections", len(r.Sections), len(names))
	got, most := strings.Count(stdout.String(), notMeasured+" |"), 0
	for _, target := range targets {
		if target.absent {
			most++
		}
	}
	if got > most {
		t.Errorf("%d targets were not measured, want %d at most: %s", got, most, &stdout)
	}
}

func TestAllRefusesWhatCanNotBeMeant(t *testing.T) {
	for _, args := range [][]string{{"all", "-only", "unknown"}, {"all", "more"}, {"slots", "-bits", "9"}, {"slots", "-rounds", "0"}, {"redis", "-rounds", "0"}, {"redis", "-calls", "49"}, {"size", "more"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, nil, &stdout, &stderr); code != usage || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, %q", args, code, &stderr)
		}
	}
}
