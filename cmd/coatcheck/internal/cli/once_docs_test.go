//go:build check

package cli

import (
	"os"
	"regexp"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// owner is the host and process in what once prints of a command that ran before.
var owner = regexp.MustCompile(`on \S+:\d+, and`)

// The commands of docs/once.md print what the page says.
func TestCommandsOfTheOncePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/once.md")
	if err != nil {
		t.Fatalf("reading the page: %v", err)
	}
	steps := walk(string(page))
	expect.MustEqual(t, "whether the page has commands", len(steps) > 5, true)
	outputs := runWalk(t, serve(t).banner.URL, steps)
	plain := func(output string) string { return owner.ReplaceAllString(shape(output), "on host:pid, and") }
	for i, step := range steps {
		expect.Equal(t, "$ "+step.command, plain(outputs[i]), plain(step.output))
	}
}
