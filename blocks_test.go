package coatcheck_test

import (
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// fence begins a block of code, and says what it is.
var fence = regexp.MustCompile("(?ms)^ *```([^\n`]*)\n(.*?)^ *```$")

// blockTests run the blocks of pages, or read them as the program does; the first row that fits
// counts. Blocks of text are output, or lines of a format, and nobody types them.
var blockTests = []struct{ language, pages, test string }{
	{"text", "*", ""},
	{"sh", "docs/remote.md", "TestGeneratedClientsCallTheService"},
	{"sh", "*", "TestShellOfThePagesIsOfThisProgram"},
	{"console", "README.md", "TestWalkOfTheReadme"},
	{"console", "docs/walk.md", "TestWalkThroughTheService"},
	{"console", "docs/access.md", "TestCommandsOfTheAccessPage"},
	{"console", "docs/configuration.md", "TestCommandsOfTheConfigurationPage"},
	{"console", "docs/counters.md", "TestCommandsOfTheCountersPage"},
	{"console", "docs/doors.md", "TestDoorsPageRuns"},
	{"console", "docs/ids.md", "TestIDsPageRuns"},
	{"console", "docs/limits.md", "TestCommandsOfTheLimitsPage"},
	{"console", "docs/locks.md", "TestCommandsOfTheLocksPage"},
	{"console", "docs/migrating.md", "TestCommandsOfTheMigrationPage"},
	{"console", "docs/once.md", "TestCommandsOfTheOncePage"},
	{"console", "docs/operations.md", "TestCommandsOfTheOperationsPage"},
	{"console", "docs/remote.md", "TestCommandsOfThePage"},
	{"console", "docs/segments.md", "TestCommandsOfTheSegmentsPage"},
	{"console", "docs/upgrades.md", "TestCommandsOfTheUpgradesPage"},
	{"console", "docs/webhooks.md", "TestCommandsOfTheWebhooksPage"},
	{"console", "examples/payments/README.md", "TestWalkOfTheReadme"},
	{"conf", "docs/operations.md", "TestCommandsOfTheOperationsPage"},
	{"yaml", "docs/operations.md", "TestCommandsOfTheOperationsPage"},
	{"yaml", "docs/webhooks.md", "TestWebhooksOfFourSenders"},
	{"yaml", "docs/access.md", "TestYAMLOfThePages"},
	{"yaml", "docs/gateway.md", "TestYAMLOfThePages"},
	{"yaml", "docs/workers.md", "TestYAMLOfThePages"},
	{"crontab", "docs/once.md", "TestCrontabOfTheOncePages"},
	{"crontab", "examples/nightly/README.md", "TestCrontabOfTheOncePages"},
	{"nginx", "docs/limits.md", "TestNginxAsksALimit"},
	{"nginx", "docs/gateway.md", "TestServersEndAsThePageSays"},
	{"haproxy", "docs/gateway.md", "TestServersEndAsThePageSays"},
	{"apache", "docs/gateway.md", "TestServersEndAsThePageSays"},
	{"caddy", "docs/gateway.md", "TestServersEndAsThePageSays"},
	{"vcl", "docs/gateway.md", "TestServersEndAsThePageSays"},
	{"lua", "docs/locks.md", "TestRecipesOfTheLocksPage"},
	{"sql", "docs/locks.md", "TestRecipesOfTheLocksPage"},
	// and TestRecipesOfServersAreResolvers; the page names the recipes that were run by hand
	{"sql", "docs/effects.md", "TestRecipesForSQLiteDoWhatTheySay"},
	{"python", "clients/python/README.md", "TestPythonREADMERuns"},
	{"python", "docs/webhooks.md", "TestCommandsOfTheWebhooksPage"},
	{"js", "clients/node/README.md", "TestNodeREADMERuns"},
	{"go", "README.md", "TestReadmeShowsTheExampleThatRuns"},
	{"go", "docs/locks.md", "TestRecipesOfTheLocksPage"},
	{"go", "*", "TestGoInDocumentsIsRunByATest"}, // but for CONTRIBUTING.md's outline of a test
}

// Every block of code of every page is run by a test, or marked as text.
func TestEveryBlockIsRunOrMarked(t *testing.T) {
	tests := testNames(t)
	for _, row := range blockTests {
		if row.test != "" && !tests[row.test] {
			t.Errorf("there is no %s, which runs %s of %s", row.test, row.language, row.pages)
		}
	}
	blocks, used := 0, map[int]bool{}
	for _, name := range documents(t) {
		text, err := os.ReadFile(name)
		expect.NoError(t, "os.ReadFile", err)
		for _, language := range blocksOf(string(text)) {
			blocks++
			at := blockTest(language, name)
			if at < 0 {
				t.Errorf("%s has a block of %q that no test runs: name its test in blockTests, or mark it as text", name, language)
			}
			used[at] = true
		}
	}
	for at, row := range blockTests {
		if !used[at] {
			t.Errorf("no page of %s has a block of %s", row.pages, row.language)
		}
	}
	if blocks < 150 {
		t.Errorf("%d blocks: does this test still read them?", blocks)
	}
}

// blocksOf are the languages of a page's blocks.
func blocksOf(text string) (languages []string) {
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		languages = append(languages, strings.TrimSpace(block[1]))
	}
	return languages
}

// blockTest finds the first row for a block, -1 if there is none.
func blockTest(language, page string) int {
	for at, row := range blockTests {
		if fits, _ := path.Match(row.pages, page); row.language == language && (fits || row.pages == "*") {
			return at
		}
	}
	return -1
}

func TestBlocksWithoutATestAreFound(t *testing.T) {
	const page = "x\n```sh\nmake\n```\n\n1. y\n   ```\n   out\n   ```\n```yaml\na: 1\n```\n"
	if got := strings.Join(blocksOf(page), ","); got != "sh,,yaml" {
		t.Errorf("blocks %q, want sh, one without a language, and yaml", got)
	}
	for _, row := range []struct {
		language, page string
		found          bool
	}{{"sh", "docs/new.md", true}, {"", "docs/new.md", false}, {"console", "docs/new.md", false}, {"console", "docs/ids.md", true}, {"yaml", "deploy/README.md", false}} {
		if got := blockTest(row.language, row.page) >= 0; got != row.found {
			t.Errorf("%q of %s: found %t, want %t", row.language, row.page, got, row.found)
		}
	}
}
