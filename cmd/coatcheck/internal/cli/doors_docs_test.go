//go:build check

package cli

import (
	"os"
	"testing"
)

func TestDoorsPageRuns(t *testing.T) {
	runsAsWritten(t, "../../../../docs/doors.md", "--segment-step", "2000", "--tinyid-tokens", "orders=0f673adf,events=5d791b64")
}

func TestIDsPageRuns(t *testing.T) {
	runsAsWritten(t, "../../../../docs/ids.md", "--opaque-key", aKey("k1", 7))
}

// runsAsWritten runs a page's commands against a service of their own, and compares what they
// print.
func runsAsWritten(t *testing.T, name string, args ...string) {
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk(string(page))
	outputs := runWalk(t, serve(t, args...).banner.URL, steps)
	for i, step := range steps {
		if got, want := shape(outputs[i]), shape(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}
