package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

const operationsPage = "../../../../docs/operations.md"

// TestRunbookHasEveryAnswerOfAnOutage looks for a row of each problem that says that something is
// out of order here, and for rows of problems that there are not.
func TestRunbookHasEveryAnswerOfAnOutage(t *testing.T) {
	page, err := os.ReadFile(operationsPage)
	expect.NoError(t, "read the page", err)
	_, runbook, _ := strings.Cut(string(page), "\n## Runbook\n")
	var told []api.Code
	for line := range strings.Lines(runbook) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			for _, code := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(cells[1], -1) {
				told = append(told, api.Code(code[1]))
			}
		}
	}
	for _, code := range api.Codes() {
		if kind, _ := api.Lookup(code); kind.Status >= 500 && !slices.Contains(told, code) {
			t.Errorf("%s, status %d, has no row in the runbook", code, kind.Status)
		}
	}
	for _, code := range told {
		if _, known := api.Lookup(code); !known {
			t.Errorf("the runbook has a row of %s, which is no code", code)
		}
	}
	if len(told) < 10 {
		t.Errorf("%d codes in the runbook: does this test still read it?", len(told))
	}
}
