package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/lock"
)

const locksPage = "../../../../docs/locks.md"

// What people copy from the page is what the package has, and what its example runs.
func TestRecipesOfTheLocksPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(locksPage)
	expect.NoError(t, "read the page", err)
	example, err := os.ReadFile("../../../../lock/example_test.go")
	expect.NoError(t, "read the page", err)
	_, shown, _ := strings.Cut(string(page), "```go\n")
	shown, _, _ = strings.Cut(shown, "```")
	plain := func(code string) string { return strings.Join(strings.Fields(code), " ") }
	for _, part := range []struct{ what, whole, part string }{
		{"the Lua recipe", string(page), lock.CheckFence},
		{"the SQL recipe", string(page), lock.CheckFenceSQL(lock.PlaceholderQuestion, "account", "id", "balance")},
		{"the example", plain(string(example)), plain(shown)},
	} {
		if part.part == "" || !strings.Contains(part.whole, part.part) {
			t.Errorf("the page lacks %s: %s", part.what, part.part)
		}
	}
}
