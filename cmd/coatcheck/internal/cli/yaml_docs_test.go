package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/coatcheck/coatcheck/gateway"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Files that pages show are in order as they stand there.
func TestYAMLOfThePages(t *testing.T) {
	shown := func(page string) string {
		t.Helper()
		found := yamlBlock.FindStringSubmatch(readRoot(t, page))
		expect.MustEqual(t, "whether "+page+" shows a file", found != nil, true)
		return found[1]
	}
	routes, err := gateway.ParseRoutes([]byte(shown("docs/gateway.md")))
	expect.Error(t, "reading the routes of docs/gateway.md", err, nil)
	expect.Equal(t, "the number of its routes", len(routes.List), 1)

	keys := filepath.Join(t.TempDir(), "keys.yaml")
	expect.MustEqual(t, "error of the file of keys", os.WriteFile(keys, []byte(shown("docs/access.md")), 0o600), nil)
	for page, settings := range map[string]string{
		"docs/access.md":  "access: " + keys + "\n",
		"docs/workers.md": shown("docs/workers.md"),
	} {
		code, stdout, stderr := coatcheck(t, nil, "config", "check", "--config", file(t, settings))
		expect.Equal(t, page+": exit code of config check: "+stderr, code, 0)
		expect.Contains(t, page+": config check", stdout, "in order")
	}
}
