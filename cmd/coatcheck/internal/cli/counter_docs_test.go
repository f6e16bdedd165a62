//go:build check

package cli

import (
	"os"
	"regexp"
	"testing"
)

const countersPage = "../../../../docs/counters.md"

// today is a date as keys and numbers have it.
var today = regexp.MustCompile(`\b20[0-9]{6}\b`)

// TestCommandsOfTheCountersPage runs every command of docs/counters.md in one shell, and compares
// what it prints with the page. With -update it writes that into the page.
func TestCommandsOfTheCountersPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(countersPage)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk(string(text))
	outputs := runPage(t, serve(t).banner.URL, steps)
	if *update {
		writePage(t, countersPage, string(text), steps, outputs)
		return
	}
	look := func(output string) string { return today.ReplaceAllString(shape(output), "…") }
	for i, step := range steps {
		if got, want := look(outputs[i]), look(step.output); got != want {
			t.Errorf("$ %s\nprinted %s\nthe page says %s", step.command, got, want)
		}
	}
}
