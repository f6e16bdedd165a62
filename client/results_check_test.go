//go:build check

package client_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// worked runs the program testdata/work of a language for a group of its works, and returns by
// their names what the caller and then a repeat get.
func worked(t *testing.T, language, group string) map[string]string {
	t.Helper()
	var output string
	switch url := embedded(t).url; language {
	case "python":
		output = ran(t, ".", "env", "PYTHONPATH="+pythonPackage, "python3", "testdata/work.py", url, group)
	case "node":
		home, err := filepath.Abs("../clients/node/index.mjs")
		must(t, "finding the package", err)
		output = ran(t, ".", "node", "testdata/work.mjs", "file://"+home, url, group)
	}
	got := map[string]string{}
	for line := range strings.Lines(output) {
		name, outcome, _ := strings.Cut(strings.TrimSpace(line), ": ")
		got[name] = outcome
	}
	return got
}

// inBoth runs a test for the clients that run work in languages whose results are of any type.
func inBoth(t *testing.T, test func(t *testing.T, language string)) {
	t.Helper()
	for _, language := range []string{"python", "node"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			test(t, language)
		})
	}
}

// all fails the test unless all works have one outcome, and are as many as least.
func all(t *testing.T, works map[string]string, want string, least int) {
	t.Helper()
	for name, got := range works {
		expect.Equal(t, name, got, want)
	}
	if len(works) < least {
		t.Errorf("%d works, want %d or more", len(works), least)
	}
}

// A call of a function that yields returns before its body has begun: it was recorded as done.
func TestFunctionThatYieldsIsRefusedBeforeItBegins(t *testing.T) {
	inBoth(t, func(t *testing.T, language string) {
		all(t, worked(t, language, "later"), "TypeError, then 200 ran", 3)
	})
}

// A result that is no data, such as a promise in a list, does not show that the work has ended.
func TestResultThatIsNoDataLeavesTheOperationInDoubt(t *testing.T) {
	inBoth(t, func(t *testing.T, language string) {
		all(t, worked(t, language, "no data"), "TypeError, then idempotency-outcome-unknown", 50)
	})
}

// What looks like an HTTP response and is none was not recorded, or recorded as another answer.
func TestOnlyAResponseIsAnAnswer(t *testing.T) {
	want := map[string]map[string]string{
		"python": {
			"a tuple":  `200 [42,{"a":1},"x"], then 200 [42,{"a":1},"x"] again`,
			"a status": `200 {"status":"paid"}, then 200 {"status":"paid"} again`,
		},
		"node": {
			"a status":                  `200 {"status":"paid"}, then 200 {"status":"paid"} again`,
			"an object like a Response": `200 {"status":201,"headers":{},"body":"paid"}, then 200 {"status":201,"headers":{},"body":"paid"} again`,
		},
	}
	inBoth(t, func(t *testing.T, language string) {
		expect.Equal(t, "results that are no Response", worked(t, language, "data"), want[language])
		all(t, worked(t, language, "responses"), `201 {"paid":true}, then 201 {"paid":true} again`, 1)
	})
}
