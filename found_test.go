package coatcheck_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// foundRow is a row of docs/found.md: the commit that mended the fault, and the test that fails on
// the commit before.
var foundRow = regexp.MustCompile("(?m)^\\|.*`tools/show-bug ([0-9a-f]{7,40}) (Test\\w+) (\\./[\\w/]+)` \\|$")

// Each commit that docs/found.md names is one of this history, and each test is in the tree, but
// for those of a design that is gone.
// tools/show-bug runs them, which takes minutes. A clone without all of the history, and a copy
// without git, have the tests alone.
func TestFaultsThatWereFoundCanBeShown(t *testing.T) {
	text, err := os.ReadFile("docs/found.md")
	expect.NoError(t, "os.ReadFile", err)
	page, tests := string(text), testNames(t)
	_, gone, _ := strings.Cut(page, "\n## Faults of a design that is gone\n")
	gone, _, _ = strings.Cut(gone, "\n## ")
	rows := foundRow.FindAllStringSubmatch(page, -1)
	if named := strings.Count(page, "| `tools/show-bug "); len(rows) != named || named < 12 {
		t.Errorf("docs/found.md: %d of %d rows have the form %s, want all, and 12 or more", len(rows), named, foundRow)
	}
	shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	whole := err == nil && strings.TrimSpace(string(shallow)) == "false"
	for _, row := range rows {
		commit, test := row[1], row[2]
		if !tests[test] && !strings.Contains(gone, test) {
			t.Errorf("docs/found.md names %s, which no test file has", test)
		}
		if !whole {
			continue
		}
		if err := exec.Command("git", "merge-base", "--is-ancestor", commit, "HEAD").Run(); err != nil {
			t.Errorf("docs/found.md names commit %s, which is not in this history: %v", commit, err)
		}
	}
}
