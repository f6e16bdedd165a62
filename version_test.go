package coatcheck_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/version"
)

// places are where the version stands, besides package version: each line that fits has it.
var places = []struct {
	file, form string // of which the first group is the version
	least      int    // lines
}{
	{"README.md", `\*\*Status\*\*: (\S+)\. `, 1},
	{"docs/stability.md", `(?m)(\S+) is the first version`, 1},
	{"deploy/README.md", `coatcheck[:_]([0-9][^_@\x60]*)`, 4},
	{"deploy/helm/coatcheck/Chart.yaml", `(?m)^(?:appVersion|version): (.*)$`, 2},
	{"deploy/kubernetes/coatcheck.yaml", `image: coatcheck:(\S+)`, 1},
	{"deploy/kubernetes/gateway.yaml", `image: coatcheck:(\S+)`, 1},
	{"deploy/kubernetes/orders.yaml", `image: coatcheck:(\S+)`, 1},
	{"idempotency/echov5/go.mod", `coatcheck/coatcheck v(\S+)`, 1},
	{"idempotency/fiberv3/go.mod", `coatcheck/coatcheck v(\S+)`, 1},
	{"idempotency/ginmw/go.mod", `coatcheck/coatcheck v(\S+)`, 1},
	{"idempotency/grpcmw/go.mod", `coatcheck/coatcheck v(\S+)`, 1},
	{"clients/node/package.json", `"version": "(.*)"`, 1},
	{"clients/python/pyproject.toml", `(?m)^version = "(.*)"`, 1},
	{"clients/python/src/coatcheck/__init__.py", `__version__ = "(.*)"`, 1},
}

// The changelog has the version, below those to come.
func TestChangelogHasTheVersion(t *testing.T) {
	text, err := os.ReadFile("CHANGELOG.md")
	expect.NoError(t, "os.ReadFile", err)
	expect.Contains(t, "CHANGELOG.md", string(text), "\n## "+version.Version+"\n")
	if strings.Contains(strings.ToLower(string(text)), "unreleased") {
		t.Error("CHANGELOG.md has a heading without a version")
	}
}

// What names the version names the same one. Python has a notation of its own for it (PEP 440).
func TestEveryPlaceHasTheVersion(t *testing.T) {
	for _, place := range places {
		text, err := os.ReadFile(place.file)
		expect.NoError(t, "os.ReadFile", err)
		want := version.Version
		if strings.HasPrefix(place.file, "clients/python/") {
			want = strings.Replace(want, "-rc.", "rc", 1)
		}
		found := regexp.MustCompile(place.form).FindAllStringSubmatch(string(text), -1)
		if len(found) < place.least {
			t.Errorf("%s names the version %d times, want %d or more", place.file, len(found), place.least)
		}
		for _, match := range found {
			expect.Equal(t, "the version in "+place.file, match[1], want)
		}
	}
}
