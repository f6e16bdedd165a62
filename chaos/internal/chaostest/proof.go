package chaostest

import (
	"flag"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/evidence"
)

var (
	proofFile = flag.String("proof", "", "append what is counted to this file, for docs/proof.md")
	seeds     sync.Map // those of lots, by the names of their tests
)

// Proving reports whether what is counted is written down: then peers are broken in all ways, too.
func Proving() bool { return *proofFile != "" }

// Prove writes down what was counted, with the seed of the test's lot.
func Prove(t testing.TB, rows ...evidence.Row) {
	t.Helper()
	for _, row := range rows {
		row.Seed = seedOf(t.Name())
		prove(t, evidence.Line{Row: &row})
	}
}

// ProveCase writes down a row of a table of cases.
func ProveCase(t testing.TB, table string, cells ...string) {
	t.Helper()
	prove(t, evidence.Line{Case: &evidence.Case{Table: table, Cells: cells}})
}

// ProveTimeline writes down a violation with what happened around it.
func ProveTimeline(t testing.TB, line evidence.Timeline) {
	t.Helper()
	prove(t, evidence.Line{Timeline: &line})
}

func prove(t testing.TB, line evidence.Line) {
	t.Helper()
	if !Proving() {
		return
	}
	if err := evidence.Append(*proofFile, line); err != nil {
		t.Errorf("writing down what was counted: %v", err)
	}
}

// seedOf is what a test's lot was drawn with, or that of a test around it.
func seedOf(name string) uint64 {
	for {
		if drawn, found := seeds.Load(name); found {
			return drawn.(uint64)
		}
		at := strings.LastIndexByte(name, '/')
		if at < 0 {
			return *seed
		}
		name = name[:at]
	}
}
