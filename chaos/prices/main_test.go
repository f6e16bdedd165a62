//go:build nightly

package prices

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// What is measured, and where the figures go. The defaults are for a run beside other tests: a few
// rows that take seconds, and nothing is written. Files are named from the root of the tree.
var (
	program    = flag.String("program", "", "the program to measure; empty builds the one of this tree")
	all        = flag.Bool("all", false, "measure all rows of restarts, not only those that take seconds")
	outages    = flag.Bool("outages", false, "measure all rows of outages, not only one")
	write      = flag.Bool("write", false, "write the tables into docs/proof.md")
	jsonFile   = flag.String("json", "", "write the figures into this file, too")
	beforeFile = flag.String("before", "", "figures of an older program, which stand beside the new ones in the table")
)

// inTree is a file that is named from the root of the tree.
func inTree(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join("..", "..", name)
}

// beside lets a test run beside others where its figures are not kept: nearly all of it is waiting.
func beside(t *testing.T) {
	t.Helper()
	if !*all && !*outages && !*write && *jsonFile == "" {
		t.Parallel()
	}
}

func TestMain(m *testing.M) { chaostest.Main(m, play) }
